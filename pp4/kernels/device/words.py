"""Candidate words: what travels between tiles, shards and ranks.

``image << 32 | ~id``, 64 bits: the image of the value rises with it, the inverted id makes the
lower id the larger word.  0 is no candidate; two control words lie above every candidate.
"""

import triton.language as tl

ALL_ONES = tl.constexpr(0xFFFFFFFF)
BAD = tl.constexpr(0x10000 << 32)
PROTOCOL = tl.constexpr(0x10001 << 32)
