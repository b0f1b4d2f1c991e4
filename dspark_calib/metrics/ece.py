"""Expected calibration error and its relatives, from arrays.

Formulas: ECE (Naeini et al. 2015; binning as in DeepSpec's evaluator), debiased squared error (Kumar, Liang
and Ma 2019, after Bröcker 2012). Uncertainty is in `bootstrap`, bin-free error in `smooth_ece`.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import (
    DEFAULT_BINS,
    BinSums,
    Floats,
    Integers,
    bin_indices,
    checked_rows,
    clamp,
    equal_mass_edges,
    equal_width_edges,
    weighted_counts,
)

Binning = Literal["equal_width", "equal_mass"]


def compute_reliability(
    predicted: npt.ArrayLike,
    observed: npt.ArrayLike,
    *,
    bins: int = DEFAULT_BINS,
    binning: Binning = "equal_width",
    weights: npt.ArrayLike | None = None,
) -> BinSums:
    """Return counts and sums per bin.

    Args:
        predicted: Probabilities in [0, 1], shape [n]. Logits are never guessed to be probabilities or the reverse.
        observed: Labels 0 or 1 (or probabilities of a soft label), shape [n].
        bins: Number of bins.
        binning: `equal_width` (DeepSpec's rule) or `equal_mass`.
        weights: Row weights ≥ 0 with a positive sum, shape [n], or None for 1.

    Raises:
        ValueError: If there is no row, a value lies outside [0, 1] or is not finite, or shapes differ.
    """
    p, y = checked_rows(predicted, observed)
    p, w = clamp(p), _checked_weights(weights, len(p))
    if binning == "equal_mass":
        edges = equal_mass_edges(p, bins)
        index: Integers = np.searchsorted(edges[1:-1], p, side="left").astype(np.int64)
    else:
        edges, index = equal_width_edges(bins), bin_indices(p, bins)
    count = len(edges) - 1
    n = np.bincount(index, weights=w, minlength=count) if w is not None else np.bincount(index, minlength=count)
    scale = 1.0 if w is None else w
    return BinSums(
        edges=edges,
        n=n,
        predicted_sum=weighted_counts(index, p * scale, count),
        observed_sum=weighted_counts(index, y * scale, count),
    )


def compute_ece(
    predicted: npt.ArrayLike,
    observed: npt.ArrayLike,
    *,
    bins: int = DEFAULT_BINS,
    binning: Binning = "equal_width",
    weights: npt.ArrayLike | None = None,
) -> float:
    """Return the expected calibration error Σ_b n_b |mean p - mean y| / n.

    >>> round(compute_ece([0.15, 0.15, 0.15, 0.12], [0, 0, 0, 1]), 4)
    0.3325

    Raises:
        ValueError: As `compute_reliability`.
    """
    ece = compute_reliability(predicted, observed, bins=bins, binning=binning, weights=weights).ece
    if ece is None:
        raise ValueError("ECE needs at least one row with a positive weight")
    return ece


def compute_squared_error_debiased(sums: BinSums) -> float | None:
    """Return Σ_b n_b/n [(mean p - mean y)² - ȳ(1-ȳ)/(n_b-1)]; negative values are legal.

    A bin with one row has no variance estimate and contributes its plug-in term (Kumar et al. 2019, §4).
    """
    if sums.total == 0:
        return None
    n = np.asarray(sums.n, dtype=np.float64)
    filled = n > 0
    n, p, y = n[filled], sums.predicted_sum[filled] / n[filled], sums.observed_sum[filled] / n[filled]
    variance = np.where(n > 1, y * (1 - y) / np.maximum(n - 1, 1), 0.0)
    return float((n * ((p - y) ** 2 - variance)).sum() / n.sum())


def compute_noise_floor(sums: BinSums) -> float | None:
    """Return the mean ECE of a perfectly calibrated predictor with these bins and independent rows.

    E[ECE] ≈ √(2/π) Σ_b √(n_b p_b (1-p_b)) / n, about 1.3/√n for 20 bins. Under clustering use the floor of
    `scoring`, which takes the variance of each bin from the prompts.
    """
    if sums.total == 0:
        return None
    n = np.asarray(sums.n, dtype=np.float64)
    p = np.divide(sums.predicted_sum, n, out=np.zeros_like(n), where=n > 0)
    return float(np.sqrt(2 / np.pi) * np.sqrt(n * p * (1 - p)).sum() / n.sum())


def _checked_weights(weights: npt.ArrayLike | None, rows: int) -> Floats | None:
    if weights is None:
        return None
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (rows,) or not np.all(np.isfinite(w) & (w >= 0)) or w.sum() <= 0:
        raise ValueError("weights must be [n], finite, not negative, and not all zero")
    return w
