"""Bins of predicted probability and the sums kept in them.

The default rule is that of DeepSpec's evaluator (`eval/dspark/confidence_head.py`): probabilities clamped
to [1e-8, 1-1e-8], bin ⌊p·B⌋ capped at B-1. It is not numpy's `digitize`: the two differ at .15, .30, .35, …
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

DEFAULT_BINS = 20
CLAMP = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class BinSums:
    """Sums of one reliability diagram; empty bins stay, with count 0 and mean None.

    Attributes:
        edges: Bin edges, increasing, shape [B+1].
        n: Rounds in each bin (sum of weights where rows carry weights), shape [B].
        predicted_sum: Sum of predicted probabilities, shape [B].
        observed_sum: Sum of labels, shape [B].
        observed_se: Clustered standard error of the observed rate, NaN where unknown, shape [B].
    """

    edges: Floats
    n: npt.NDArray[np.generic]
    predicted_sum: Floats
    observed_sum: Floats
    observed_se: Floats | None = None

    @property
    def total(self) -> float:
        """Rounds in all bins."""
        return float(self.n.sum())

    @property
    def predicted(self) -> tuple[float | None, ...]:
        """Mean predicted probability of each bin, None where it is empty."""
        return _means(self.predicted_sum, self.n)

    @property
    def observed(self) -> tuple[float | None, ...]:
        """Observed rate of each bin, None where it is empty."""
        return _means(self.observed_sum, self.n)

    @property
    def ece(self) -> float | None:
        """Expected calibration error Σ_b |Σp - Σy| / n, or None without rounds."""
        return float(np.abs(self.predicted_sum - self.observed_sum).sum() / self.total) if self.total > 0 else None


def _means(sums: Floats, n: npt.NDArray[np.generic]) -> tuple[float | None, ...]:
    return tuple(float(s / c) if c > 0 else None for s, c in zip(sums.tolist(), n.tolist(), strict=True))


def checked_rows(predicted: npt.ArrayLike, observed: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return predictions and labels in float64, shape [n] each.

    Raises:
        ValueError: If there is no row, a value lies outside [0, 1] or is not finite, or shapes differ.
    """
    p = np.asarray(predicted, dtype=np.float64)
    y = np.asarray(observed, dtype=np.float64)
    if p.ndim != 1 or p.shape != y.shape:
        raise ValueError(f"predicted and observed must be [n] alike, got {p.shape} and {y.shape}")
    if len(p) == 0:
        raise ValueError("calibration of no rows is undefined")
    for name, values in (("predicted", p), ("observed", y)):
        bad = ~((values >= 0) & (values <= 1))  # also true for NaN
        if bad.any():
            raise ValueError(f"{name}[{int(bad.argmax())}] = {values[bad.argmax()]} is no probability in [0, 1]")
    return p, y


def checked_labels(labels: npt.ArrayLike, rows: int) -> npt.NDArray[np.bool_]:
    """Return labels 0 or 1, shape [n].

    Raises:
        ValueError: If there are not as many as rows, or one is neither 0 nor 1 (such as a probability in its place).
    """
    y = np.asarray(labels)
    if y.shape != (rows,):
        raise ValueError(f"labels must be [{rows}] like the scores, got {y.shape}")
    other = (y != 0) & (y != 1)  # also true for NaN
    if other.any():
        raise ValueError(f"labels[{int(other.argmax())}] = {y[other.argmax()]} is neither 0 nor 1")
    return np.asarray(y, dtype=bool)


def clamp(probabilities: npt.ArrayLike) -> Floats:
    """Return the probabilities in float64, clamped to [1e-8, 1 - 1e-8]."""
    return np.clip(np.asarray(probabilities, dtype=np.float64), CLAMP, 1.0 - CLAMP)


def equal_width_edges(bins: int) -> Floats:
    """Return 0, 1/B, …, 1."""
    return np.arange(bins + 1) / bins


def bin_indices(clamped: Floats, bins: int) -> Integers:
    """Return ⌊p·B⌋ of clamped probabilities, capped at B-1, same shape."""
    return np.minimum((clamped * bins).astype(np.int64), bins - 1)


def equal_mass_edges(clamped: Floats, bins: int) -> Floats:
    """Return edges that put about as many rows in each bin; equal values never part, so fewer bins may remain.

    Args:
        clamped: Probabilities, shape [n].
        bins: Bins wanted; at most as many as there are distinct values result.
    """
    quantiles = np.quantile(clamped, np.arange(1, bins) / bins, method="inverted_cdf")
    inner = np.unique(quantiles)
    # A bin is (left edge, right edge]: an edge at the largest value would leave an empty bin above it.
    return np.concatenate([[0.0], inner[inner < clamped.max()], [1.0]])


def weighted_counts(index: npt.NDArray[np.generic], weights: npt.NDArray[np.generic], size: int) -> Floats:
    """Return Σ weights by index in float64, shape [size]."""
    return np.asarray(np.bincount(index, weights=weights, minlength=size), dtype=np.float64)


def summed_rows(index: npt.NDArray[np.integer[Any]], values: Floats, size: int) -> Floats:
    """Return Σ values by index, shape [size, d], without holding the interpreter's lock.

    A matrix with one entry a column, times the values: rows are added in their order, as by bincount.

    Args:
        index: 0 ≤ index < size, shape [n].
        values: Shape [n, d].
        size: Sums wanted.
    """
    from scipy.sparse import csc_array

    n = len(index)
    entries = (np.ones(n), index.astype(np.int32, copy=False), np.arange(n + 1, dtype=np.int32))
    return np.asarray(csc_array(entries, shape=(size, n)) @ values)
