"""CORP decomposition of the Brier score (Dimitriadis, Gneiting and Jordan, PNAS 2021).

The recalibrated prediction is the isotonic regression of labels on predictions. On streamed data it is
fitted to the sums of fine score bins, whose rows lie within .2 % of one another in odds.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import Floats, checked_rows, clamp, weighted_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """Brier = miscalibration - discrimination + uncertainty.

    Attributes:
        miscalibration: What recalibration would gain (0 is calibrated).
        discrimination: What the recalibrated prediction gains over the base rate.
        uncertainty: Brier score of the base rate.
    """

    miscalibration: float
    discrimination: float
    uncertainty: float


def isotonic_sums(n: Floats, positives: Floats) -> Floats:
    """Return the isotonic (pool-adjacent-violators) rate of each ordered cell, NaN where n = 0, shape [S]."""
    from sklearn.isotonic import isotonic_regression

    filled = n > 0
    rates = np.full(len(n), np.nan)
    if filled.any():
        rates[filled] = isotonic_regression(positives[filled] / n[filled], sample_weight=n[filled])
    return rates


def decompose_brier(brier: float, n: Floats, positives: Floats) -> Decomposition | None:
    """Return the decomposition from cells ordered by prediction.

    Args:
        brier: Mean squared error of the predictions over all rows.
        n: Rows per cell, shape [S].
        positives: Rows with label 1 per cell, shape [S].
    """
    total = n.sum()
    if total == 0:
        return None
    base = positives.sum() / total
    rates = np.nan_to_num(isotonic_sums(n, positives))
    recalibrated = float((positives * (1 - rates) ** 2 + (n - positives) * rates**2).sum() / total)
    uncertainty = float(base * (1 - base))
    return Decomposition(
        miscalibration=brier - recalibrated, discrimination=uncertainty - recalibrated, uncertainty=uncertainty
    )


def compute_corp(predicted: npt.ArrayLike, observed: npt.ArrayLike) -> Decomposition:
    """Return the exact decomposition of arrays; ties in prediction are pooled before the fit.

    Raises:
        ValueError: If there is no row, a value lies outside [0, 1] or is not finite, or shapes differ.
    """
    p, y = checked_rows(predicted, observed)
    p = clamp(p)
    distinct, index = np.unique(p, return_inverse=True)
    n = np.bincount(index, minlength=len(distinct)).astype(np.float64)
    result = decompose_brier(float(np.mean((p - y) ** 2)), n, weighted_counts(index, y, len(distinct)))
    if result is None:
        raise ValueError("the decomposition of no rows is undefined")
    return result
