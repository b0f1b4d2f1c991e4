"""How far apart two distributions of confidence logits are, from histograms."""

import numpy as np
import numpy.typing as npt

from dspark_calib.decision.cluster_sums import LOGIT_CELLS, LOGIT_RANGE

Floats = npt.NDArray[np.float64]

PSI_BINS = 10
_SMOOTHING = 0.5  # rounds added to every bin, so that an empty bin gives a finite index


def merge_to_deciles(cells: Floats) -> Floats:
    """Return the histograms merged into the deciles of their sum, so that neither side defines the bins.

    Args:
        cells: Shape [prompts, cells].

    Returns:
        Shape [prompts, bins], at most 10 bins.
    """
    pooled = cells.sum(axis=0)
    middle = np.cumsum(pooled) - pooled / 2
    decile = np.minimum((PSI_BINS * middle / max(pooled.sum(), 1.0)).astype(np.int64), PSI_BINS - 1)
    return np.asarray(cells @ np.equal.outer(decile, np.unique(decile[pooled > 0])).astype(np.float64))


def stability_index(first: Floats, second: Floats) -> Floats:
    """Return the population stability index Σ (p - q) ln(p/q), shape [...].

    Args:
        first: Counts per bin, shape [..., bins].
        second: Counts of the other side, same shape.

    >>> round(float(stability_index(np.array([99.5, 199.5]), np.array([199.5, 99.5]))), 6)
    0.231049
    """
    p, q = _normalised(first + _SMOOTHING), _normalised(second + _SMOOTHING)
    return np.asarray(((p - q) * np.log(p / q)).sum(axis=-1))


def wasserstein(first: Floats, second: Floats) -> Floats:
    """Return the Wasserstein-1 distance of two histograms over the logit cells, in logits: ∫ |F - G|.

    Args:
        first: Counts per cell, shape [..., cells].
        second: Same shape.
    """
    gap = np.cumsum(_normalised(first), axis=-1) - np.cumsum(_normalised(second), axis=-1)
    return np.asarray(np.abs(gap).sum(axis=-1) * (2 * LOGIT_RANGE / LOGIT_CELLS))


def _normalised(counts: Floats) -> Floats:
    total = counts.sum(axis=-1, keepdims=True)
    return np.asarray(counts / np.where(total > 0, total, 1.0))
