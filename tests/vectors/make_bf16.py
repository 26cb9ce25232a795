"""Write ``bf16.json``: float32 bits and the BF16 bits they round to, by exact rational arithmetic.

Nothing of the project is imported.  Every finite BF16 value is listed as a fraction, a float32 is
read as a fraction, and the nearer neighbour is taken; of two equally near ones that with the even
pattern.  Half a step beyond the largest finite value and above is infinity, as IEEE 754 rounds.

Run it in this directory: ``python make_bf16.py > bf16.json``.
"""

import json
import sys
from bisect import bisect_left
from fractions import Fraction

PLACES = 7  # fraction bits of BF16


def value(bits: int, width: int) -> Fraction:
    """Value of a positive finite pattern with 8 exponent bits and ``width`` fraction bits."""
    exponent, fraction = bits >> width, bits & ((1 << width) - 1)
    if exponent == 0:
        return Fraction(fraction, 1 << width) * Fraction(1, 1 << 126)
    return (1 + Fraction(fraction, 1 << width)) * Fraction(2) ** (exponent - 127)


FINITE = [value(pattern, PLACES) for pattern in range(0x7F80)]
STEP_PAST_THE_END = Fraction(2) ** 128


def rounded(bits: int) -> int:
    """BF16 pattern of a float32 pattern."""
    sign, size = bits >> 31, bits & 0x7FFFFFFF
    if size > 0x7F800000:
        return 0x7FC0  # every NaN is the same one
    if size == 0x7F800000:
        return sign << 15 | 0x7F80
    exact = value(size, 23)
    above = bisect_left(FINITE, exact)
    near = [place for place in (above - 1, above) if 0 <= place <= 0x7F80]
    steps = [*FINITE, STEP_PAST_THE_END]
    best = min(near, key=lambda place: (abs(steps[place] - exact), place & 1))
    return sign << 15 | best


def cases() -> list[int]:
    """Float32 patterns at every kind of border."""
    tops = [0x0000, 0x0001, 0x007F, 0x0080, 0x0081, 0x3F7F, 0x3F80, 0x3F81, 0x4049, 0x42FE, 0x7F7E]
    tops += [0x7F7F]
    lows = [0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    both = [top << 16 | low for top in tops for low in lows]
    special = [0x7F800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFF8000, 0x7FFFFFFF]
    positive = [*both, *special, 0x00000001, 0x00000002, 0x00400000, 0x33D6BF95, 0x501502F9]
    return [*positive, *(bits | 0x80000000 for bits in positive)]


if __name__ == "__main__":
    rows = [[f"{bits:08x}", f"{rounded(bits):04x}"] for bits in cases()]
    sys.stdout.write("[\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]\n")
