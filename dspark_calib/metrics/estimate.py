"""A number with its prompt-clustered uncertainty, and the two kinds of bootstrap interval."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEVEL = 0.95
NORMAL_QUANTILE = 1.959963984540054  # of (1 + LEVEL) / 2
MIN_DRAWS = 40  # fewer replicates leave less than one beyond each end of a 95 % interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number with its prompt-clustered standard error and 95 % interval.

    Attributes:
        value: The estimate, or None where it is undefined.
        se: Clustered standard error, or None where it could not be had (one prompt).
        low: Lower end of the 95 % interval.
        high: Upper end.
    """

    value: float | None
    se: float | None = None
    low: float | None = None
    high: float | None = None


UNDEFINED = Estimate(value=None)


def finite_or_none(value: float) -> float | None:
    """Return the number, or None in place of NaN and infinities."""
    return float(value) if math.isfinite(value) else None


def percentile_estimate(value: float | None, draws: Floats | None) -> Estimate:
    """Return the percentile interval, right for measures whose estimate has no bias (means, differences of means).

    Args:
        value: The estimate.
        draws: Bootstrap replicates, shape [R]; None or too few give no interval.
    """
    return _with_interval(value, draws, pivotal=False)


def basic_estimate(
    value: float | None, draws: Floats | None, *, lowest: float = -math.inf, highest: float = math.inf
) -> Estimate:
    """Return the basic (pivotal) interval [2v - q_hi, 2v - q_lo], cut to the range of the measure.

    Right for ECE, whose plug-in estimate is biased upwards, and whose replicates are so once more: the
    percentile interval then misses the truth altogether (0 % coverage near calibration).
    """
    estimate = _with_interval(value, draws, pivotal=True)
    if estimate.low is None or estimate.high is None:
        return estimate
    low, high = (min(max(end, lowest), highest) for end in (estimate.low, estimate.high))
    return Estimate(value=estimate.value, se=estimate.se, low=low, high=high)


def normal_estimate(
    value: float | None, se: float | None, *, lowest: float = -math.inf, highest: float = math.inf
) -> Estimate:
    """Return value ± 1.96 se, cut to the range of the measure."""
    if value is None or se is None or not (math.isfinite(value) and math.isfinite(se)):
        return Estimate(value=None if value is None else finite_or_none(value))
    half = NORMAL_QUANTILE * se
    return Estimate(value=value, se=se, low=max(value - half, lowest), high=min(value + half, highest))


def _with_interval(value: float | None, draws: Floats | None, *, pivotal: bool) -> Estimate:
    if value is None or not math.isfinite(value):
        return UNDEFINED
    usable = np.empty(0) if draws is None else draws[np.isfinite(draws)]
    if len(usable) < MIN_DRAWS:
        return Estimate(value=float(value))
    low, high = np.quantile(usable, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if pivotal:
        low, high = 2 * value - high, 2 * value - low
    return Estimate(value=float(value), se=float(np.std(usable)), low=float(low), high=float(high))
