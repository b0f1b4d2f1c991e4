"""Ratios of sums over prompts: estimates with clustered errors, and their differences between two sets."""

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.estimate import UNDEFINED, Estimate, normal_estimate

Floats = npt.NDArray[np.float64]


def ratio_estimates(numerator: Floats, denominator: Floats) -> tuple[Estimate, ...]:
    """Return Σnum/Σden per position, with the linearised error clustered by prompt.

    Args:
        numerator: Shape [prompts, γ].
        denominator: Shape [prompts, γ].
    """
    ratio, error = ratio_with_error(numerator, denominator)
    pairs = zip(ratio.tolist(), error.tolist(), strict=True)
    return tuple(normal_estimate(value, se) if np.isfinite(value) else UNDEFINED for value, se in pairs)


def change_estimate(before: Estimate, after: Estimate) -> Estimate:
    """Return after minus before of two independent sets of prompts."""
    if before.value is None or after.value is None:
        return UNDEFINED
    if before.se is None or after.se is None:
        return Estimate(value=after.value - before.value)
    return normal_estimate(after.value - before.value, float(np.hypot(before.se, after.se)))


def ratio_with_error(numerator: Floats, denominator: Floats) -> tuple[Floats, Floats]:
    """Return the ratio and its clustered standard error, shape [γ] each; NaN where the denominator is 0."""
    count, total = len(numerator), denominator.sum(axis=0)
    ratio = _divide(numerator.sum(axis=0), total)
    residual = numerator - np.nan_to_num(ratio) * denominator
    return ratio, _divide(np.sqrt((residual**2).sum(axis=0) * (count / (count - 1))), total)


def ratio_difference(numerator: Floats, denominator: Floats, sides: Floats) -> Floats:
    """Return Σnum/Σden of the second set minus that of the first, 0 where a set has no rows.

    Args:
        numerator: Shape [prompts, γ].
        denominator: Shape [prompts, γ].
        sides: 1 for prompts of the second set, shape [splits, prompts].

    Returns:
        Shape [splits, γ].
    """
    second = _divide(sides @ numerator, sides @ denominator)
    first = _divide((1 - sides) @ numerator, (1 - sides) @ denominator)
    return np.nan_to_num(second - first)


def _divide(numerator: Floats, denominator: Floats) -> Floats:
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator > 0)
