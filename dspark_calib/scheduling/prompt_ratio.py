"""Intervals of ratios of sums, clustered by prompt: every rate of a replay is one.

The delta method on the sums of each prompt: a prompt's influence on r = Σx/Σy is (x_p - r·y_p)/Σy. Steps are
shared by requests, which ties prompts together only through the step time; the interval leaves that out.
"""

from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np

from dspark_calib.scheduling.policy import Floats

LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A 95 % interval, its ends included."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the distance between the ends."""
        return (self.high - self.low) / 2

    def scaled(self, factor: float) -> "Interval":
        """Return the interval of factor · quantity, for a positive factor."""
        return Interval(low=self.low * factor, high=self.high * factor)


def ratio_interval(numerator: Floats, denominator: Floats) -> Interval | None:
    """Return the 95 % interval of Σx/Σy over prompts (linearised ratio, t quantile with G-1 degrees of freedom).

    Args:
        numerator: x_p, float64 [prompts].
        denominator: y_p ≥ 0, float64 [prompts]; prompts with 0 were not served and do not count.

    Returns:
        None with fewer than two prompts served.
    """
    influence = _influence(numerator, denominator)[denominator > 0]
    error = _standard_error(influence)
    if error is None:
        return None
    half = error * _quantile(len(influence))
    ratio = float(numerator.sum() / denominator.sum())
    return Interval(low=ratio - half, high=ratio + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioChange:
    """Relative difference of two rates over the same prompts.

    Attributes:
        value: (first - second)/second.
        interval: 95 % interval, paired by prompt; None with fewer than two prompts.
        standard_error: Of the logarithm of the ratio, paired by prompt; 0 with fewer than two prompts.
    """

    value: float
    interval: Interval | None
    standard_error: float = 0.0

    @property
    def within_one_standard_error(self) -> bool:
        """Whether the first rate is at most one standard error below the second."""
        return self.value >= -self.standard_error

    @property
    def clearly_positive(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.interval is not None and self.interval.low > 0

    @property
    def clearly_negative(self) -> bool:
        """Whether the whole interval lies below 0."""
        return self.interval is not None and self.interval.high < 0

    def negated(self) -> "RatioChange":
        """Return the difference with the other sign: a loss instead of a gain."""
        ends = self.interval
        return RatioChange(
            value=0.0 - self.value,  # no negative zero
            interval=None if ends is None else Interval(low=0.0 - ends.high, high=0.0 - ends.low),
            standard_error=self.standard_error,
        )

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object."""
        ends = None if self.interval is None else [self.interval.low, self.interval.high]
        return {"value": self.value, "interval": ends}


def compare_ratios(first: tuple[Floats, Floats], second: tuple[Floats, Floats]) -> RatioChange:
    """Return how far Σx₁/Σy₁ lies from Σx₂/Σy₂, paired by prompt on the logarithm of the ratio.

    Args:
        first: Numerator and denominator sums, each float64 [prompts].
        second: The same of the rate to compare with, over the same prompts.
    """
    (x1, y1), (x2, y2) = first, second
    r1, r2 = float(x1.sum() / y1.sum()), float(x2.sum() / y2.sum())
    served = (y1 > 0) | (y2 > 0)
    error = _standard_error((_influence(x1, y1) / r1 - _influence(x2, y2) / r2)[served])
    value, centre = r1 / r2 - 1.0, log(r1 / r2)
    if error is None:
        return RatioChange(value=value, interval=None)
    half = error * _quantile(int(np.count_nonzero(served)))
    interval = Interval(low=exp(centre - half) - 1.0, high=exp(centre + half) - 1.0)
    return RatioChange(value=value, interval=interval, standard_error=error)


def _influence(numerator: Floats, denominator: Floats) -> Floats:
    total = denominator.sum()
    return np.asarray((numerator - numerator.sum() / total * denominator) / total, dtype=np.float64)


def _standard_error(influence: Floats) -> float | None:
    clusters = len(influence)
    if clusters < 2:
        return None
    return sqrt(float(np.square(influence).sum()) * clusters / (clusters - 1))


def _quantile(clusters: int) -> float:
    """Return the two-sided t quantile at the level of the interval."""
    from scipy.special import stdtrit

    return float(stdtrit(clusters - 1, (1 + LEVEL) / 2))
