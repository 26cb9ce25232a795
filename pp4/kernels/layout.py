"""Sizes that host and device code share; what the words mean is in ``device/exchange.py``."""

SLOTS = 2
"""Messages of a row that a workspace has room for."""
ERROR_WORDS = 8
"""Words that tell a rank of its peer's fault: a summary, one for each fault, two unused."""
