"""Sizes that host and device code share.

What the words of a workspace mean is in ``device/exchange.py``, what keys of groups are in
``device/tile.py``.
"""

SLOTS = 2
"""Messages of a row that a workspace has room for."""
ERROR_WORDS = 8
"""Words that tell a rank of its peer's fault: a summary, one for each fault, two unused."""
NARROW_BITS = 15
"""Bits of a group's number in a key that fits an int32."""
WIDE_BITS = 32
"""Bits of a group's number in an int64 key."""
MOST_ROWS = 64
"""Rows of a launch at most: those without a cached bias row are the bits of a word."""
