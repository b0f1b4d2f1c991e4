"""Many checks, one error rate: Holm's step-down levels (Holm 1979)."""

from collections.abc import Sequence


def holm_levels(p_values: Sequence[float], alpha: float) -> tuple[float, ...]:
    """Return the level at which each hypothesis is tested; it is rejected iff its p-value is at most that level.

    The smallest p-value is tested at α/m, the next at α/(m-1), and so on up to the first that is not
    rejected; from there on every hypothesis keeps that level. Any false rejection then has probability ≤ α,
    however the tests depend on one another.

    >>> [round(level, 4) for level in holm_levels([0.001, 0.03, 0.9], 0.05)]
    [0.0167, 0.025, 0.025]
    """
    count = len(p_values)
    levels = [alpha] * count
    level, stopped = alpha, False
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        level = level if stopped else alpha / (count - rank)
        stopped = stopped or p_values[index] > level
        levels[index] = level
    return tuple(levels)
