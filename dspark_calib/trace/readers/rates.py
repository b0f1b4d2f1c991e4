"""Counts out of log lines that print rounded per-position rates beside exact token totals."""

import math
from collections.abc import Sequence

DOES_NOT_ADD_UP = "rates and token counts do not add up (windows of different length)"
NOTHING_DRAFTED = "nothing drafted in the window"


def counts_from_rates(rates: Sequence[float], drafted: int, accepted: int, decimals: int) -> tuple[int, ...] | str:
    """Return how many blocks were accepted up to each position, or why that cannot be known.

    With every window of full length, drafted = γ · blocks; the rates, rounded to `decimals`, then give whole
    counts whose sum must be the accepted tokens. Anything else means windows of different length, whose
    per-position denominators the line does not carry.

    Args:
        rates: Prefix acceptance per position, as fractions.
        drafted: Draft tokens verified.
        accepted: Draft tokens accepted.
        decimals: Decimals of the fractions.

    >>> counts_from_rates([0.75, 0.5], 8, 5, 3)
    (3, 2)
    """
    if drafted == 0:
        return NOTHING_DRAFTED
    blocks, rest = divmod(drafted, len(rates))
    if rest or not all(0 <= rate <= 1 for rate in rates):
        return DOES_NOT_ADD_UP
    counts = tuple(math.floor(rate * blocks + 0.5) for rate in rates)
    slack = 0.5 * 10.0**-decimals * blocks * len(rates)  # none of it matters below 10^decimals blocks
    longest = (blocks, *counts)
    falling = all(count <= before for count, before in zip(counts, longest, strict=False))
    if not falling or abs(sum(counts) - accepted) > slack:
        return DOES_NOT_ADD_UP
    return counts
