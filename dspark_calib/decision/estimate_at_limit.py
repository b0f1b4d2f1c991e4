"""One estimate against one limit: how far away, in standard errors, and how much data would settle it.

Everything is turned so that larger is worse: an estimate fails when its whole interval lies above the limit.
"""

import math
from dataclasses import dataclass

from scipy.stats import norm

ALPHA = 0.025  # one-sided: the two ends together are a 95 % interval
POWER = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An estimate turned so that larger is worse.

    Attributes:
        value: The estimate in that direction; for an ECE the plug-in one.
        se: Its clustered standard error.
        flipped: Whether the measure itself is better when larger (AUROC, accepted length).
        floor: For measures that cannot be negative, what they would show on average where the truth is 0 (0 for
            |bias|, the noise floor for an ECE); None for the rest.
    """

    value: float
    se: float
    flipped: bool = False
    floor: float | None = None

    @property
    def estimate(self) -> float:
        """The estimate without its floor, in the direction in which larger is worse."""
        return self._without_floor(self.value)

    def p_above(self, limit: float) -> float:
        """Return the p-value of "not above the limit" (normal)."""
        return float(norm.sf(_distance(self.value, self._with_floor(limit), self.se)))

    def low(self, level: float) -> float:
        """Return the lower end at one-sided `level`."""
        return self._without_floor(self.value - float(norm.isf(level)) * self.se)

    def high(self, level: float) -> float:
        """Return the upper end at one-sided `level`."""
        return self._without_floor(self.value + float(norm.isf(level)) * self.se)

    def interval(self, low_level: float, high_level: float) -> tuple[float, float]:
        """Return (low, high) in the direction of the measure itself."""
        low, high = self.low(low_level), self.high(high_level)
        return (-high, -low) if self.flipped else (low, high)

    def data_factor(self, limit: float, level: float) -> float | None:
        """Return by what factor more prompts would decide, if the estimate stays; None if it lies on the limit."""
        distance = abs(_distance(self.estimate, limit, self.se))
        return (float(norm.isf(level)) / distance) ** 2 if distance > 1e-6 else None

    def _without_floor(self, value: float) -> float:
        return value if self.floor is None else remove_floor(value, self.floor)

    def _with_floor(self, limit: float) -> float:
        return limit if self.floor is None else math.hypot(limit, self.floor)


def _distance(value: float, limit: float, se: float) -> float:
    if se > 0:
        return (value - limit) / se
    return math.copysign(math.inf, value - limit) if value != limit else 0.0


def smallest_detectable(se: float, level: float) -> float:
    """Return the increase that a one-sided test at `level` finds with 90 % probability."""
    return (float(norm.isf(level)) + float(norm.ppf(POWER))) * se


def remove_floor(value: float, floor: float) -> float:
    """Return the ECE without the part that sampling noise alone would give: √(v² - f²), 0 at or below the floor.

    The plug-in ECE of a sample is about √(e² + f²), with e the error of the population and f the mean plug-in
    ECE of a perfectly calibrated drafter with as many rounds and prompts. In 900 simulated traces of 2,500 and
    10,000 rounds an interval turned by this rule misses the truth in 0.2 to 4 % a side, where the basic bootstrap
    interval fails a drafter at its limit in up to 8 % (docs/decisions/0060-gate-intervals.md).

    Args:
        value: Plug-in ECE, or an end of its interval.
        floor: Mean plug-in ECE under perfect calibration.
    """
    return math.sqrt(max(value, floor) ** 2 - floor**2)


def level_with_floor(value: float, floor: float, other_floor: float) -> float:
    """Return the plug-in ECE as it would stand at another noise floor, so that samples of unequal size compare."""
    return math.sqrt(max(value**2 - floor**2 + other_floor**2, 0.0))
