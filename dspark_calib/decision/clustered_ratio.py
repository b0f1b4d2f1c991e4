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


def studentised_difference(numerator: Floats, denominator: Floats, sides: Floats) -> Floats:
    """Return Σnum/Σden of the second set minus that of the first over its clustered error, 0 where undefined.

    The error is taken anew for every split (Chung and Romano 2013, 1304.5939): permuting prompts is then valid
    also where the sets hold different numbers of rounds a prompt, which a random split evens out.

    Args:
        numerator: Shape [prompts, γ].
        denominator: Shape [prompts, γ].
        sides: 1 for prompts of the second set, shape [splits, prompts].

    Returns:
        Shape [splits, γ].
    """
    second, second_variance = _ratio_of_side(numerator, denominator, sides)
    first, first_variance = _ratio_of_side(numerator, denominator, 1 - sides)
    return np.nan_to_num(_divide(second - first, np.sqrt(first_variance + second_variance)))


def _ratio_of_side(numerator: Floats, denominator: Floats, side: Floats) -> tuple[Floats, Floats]:
    """Return the ratio of the prompts with weight 1, and its clustered variance, shape [splits, γ] each."""
    total, count = side @ denominator, side.sum(axis=1, keepdims=True)
    ratio = _divide(side @ numerator, total)
    # Σ (num - ratio·den)² over the prompts of the side, without a [splits, prompts, γ] array
    squares = side @ numerator**2 - 2 * ratio * (side @ (numerator * denominator)) + ratio**2 * (side @ denominator**2)
    return ratio, _divide(squares.clip(min=0.0) * (count / (count - 1).clip(min=1.0)), total**2)


def _divide(numerator: Floats, denominator: Floats) -> Floats:
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator > 0)
