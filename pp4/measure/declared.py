"""Numbers that were declared before anything was measured."""

from __future__ import annotations

from typing import Final

PRIMARY_ROUNDS: Final = 128
"""Headline rounds of the primary cell, in each arm.

Found by simulation (tests/unit/measure/test_error_rates.py) of rounds whose noise has a standard
deviation of 1 % and is an autoregression with rho = 0.5, with another level in each HOLD and a
drift through it.  What binds is that A against A comes out SAME, and of that the drift between the
halves, whose error is twice that of the effect.  With a drift of 0.2 % through each HOLD 64 rounds
are enough for 95 %; 128 are the least multiple of 32 with which it is so as well for a drift of
0.5 %, or for rho = 0.7.  An effect of 3 % is then found practically always."""
LEAST_ROUNDS: Final = 24
"""With fewer in a HOLD there are too few blocks, and no interval is stated."""
OTHER_ROUNDS: Final = LEAST_ROUNDS
"""Headline rounds of every other cell, in each arm."""
