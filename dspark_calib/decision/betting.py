"""Tests that may be looked at after every observation: wealth from betting against "nothing changed".

For a mean of values in [0, 1], the wealth Π (1 + λ_t (X_t - m)) with bets λ_t fixed before X_t is seen grows
only if the mean exceeds m: under "the mean is at most m" its expectation never exceeds 1, so it reaches 1/α
with probability ≤ α however often one looks (Ville; Waudby-Smith and Ramdas 2023, §4; bets after their
aGRAPA, capped). The average of many such wealths is one too, whatever their dependence.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

_BOLDNESS = 0.5  # share of the largest bet that could lose everything
_PRIOR_WEIGHT = 10.0  # observations that the reference stands for when the first bets are made


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What each mean may be if nothing changed.

    Attributes:
        mean: Of the reference, shape [C], in [0, 1].
        variance: Of the reference, shape [C].
        low: Lowest mean that counts as unchanged: the reference is itself an estimate.
        high: Highest mean that counts as unchanged.
    """

    mean: Floats
    variance: Floats
    low: Floats
    high: Floats


class Bets:
    """Bets, component by component, that a mean has risen above `high` or fallen below `low`."""

    def __init__(self, expected: Expected) -> None:
        self._expected = expected
        self._weight = np.full(expected.mean.shape, _PRIOR_WEIGHT)
        self._mean = expected.mean.copy()
        self._spread = expected.variance * _PRIOR_WEIGHT
        self.log_wealth = np.zeros((2, *expected.mean.shape))

    def observe(self, values: Floats, defined: Booleans) -> None:
        """Settle the bets on one observation of every component that has one.

        Args:
            values: In [0, 1], shape [C].
            defined: Which components were observed, shape [C].
        """
        rise, fall = self._stakes()
        gains = np.log1p(np.stack([rise * (values - self._expected.high), fall * (self._expected.low - values)]))
        self.log_wealth += np.where(defined, gains, 0.0)
        weight = self._weight + defined
        step = np.where(defined, values - self._mean, 0.0)
        self._mean = self._mean + step / weight
        self._spread = self._spread + step * np.where(defined, values - self._mean, 0.0)
        self._weight = weight

    @property
    def e_value(self) -> float:
        """The average wealth: evidence against "nothing changed", 1/α of which is an alarm at α."""
        top = self.log_wealth.max()
        return float(np.exp(top) * np.exp(self.log_wealth - top).mean())

    def _stakes(self) -> tuple[Floats, Floats]:
        """Return the bets on a rise and on a fall, from what was seen before."""
        variance = self._spread / self._weight
        above, below = self._mean - self._expected.high, self._expected.low - self._mean
        most_rise = _BOLDNESS / np.maximum(self._expected.high, 1e-9)
        most_fall = _BOLDNESS / np.maximum(1.0 - self._expected.low, 1e-9)
        rise = np.clip(above / np.maximum(variance + above**2, 1e-9), 0.0, most_rise)
        fall = np.clip(below / np.maximum(variance + below**2, 1e-9), 0.0, most_fall)
        return rise, fall
