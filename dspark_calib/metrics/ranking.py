"""AUROC with half a point for ties, and its clustered standard error.

Ranks use log-survival, a sum of log-sigmoids: a probability rounds to 1 in floating point long before
its logit stops telling rounds apart. DeLong's variance follows Obuchowski (1997) for clustered data.
"""

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import checked_labels, weighted_counts
from dspark_calib.metrics.estimate import UNDEFINED, Estimate, normal_estimate

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SCORE_BINS = 65_536
_LOWEST, _HIGHEST = -128.0, 8.0  # of log(-log a): a from 1 - e^-128 down to e^-2981
_SCALE = SCORE_BINS / (_HIGHEST - _LOWEST)


def score_bins(log_survival: npt.ArrayLike) -> Integers:
    """Return the bin 0..65,535 of log a, larger for larger a; equal bins count as ties.

    The bins are equal in log(-log a), which is fine at both ends: about z for a near 1.
    """
    s = np.asarray(log_survival, dtype=np.float64)
    depth = np.log(np.maximum(-s, np.finfo(np.float64).tiny))
    index = ((_HIGHEST - depth) * _SCALE).astype(np.int64)
    return np.clip(index, 0, SCORE_BINS - 1)


def auroc_of_counts(negatives: npt.NDArray[np.generic], positives: npt.NDArray[np.generic]) -> float | None:
    """Return P(score of a positive > of a negative) + ½ P(equal), or None where either class is missing.

    Args:
        negatives: Rows with label 0 per score bin, increasing in score, shape [S].
        positives: Rows with label 1, shape [S].
    """
    neg, pos = negatives.astype(np.float64), positives.astype(np.float64)
    if neg.sum() == 0 or pos.sum() == 0:
        return None
    below = np.cumsum(neg) - neg
    return float((pos * (below + neg / 2)).sum() / (pos.sum() * neg.sum()))


def placements(counts: npt.NDArray[np.generic]) -> Floats:
    """Return, per score bin, the share of `counts` below plus half of that within, shape [S]."""
    c = counts.astype(np.float64)
    total = c.sum()
    return (np.cumsum(c) - c / 2) / total if total > 0 else np.full(len(c), np.nan)


def cluster_deviations(
    auroc: float, placement_positive: Floats, positives: Floats, placement_negative: Floats, negatives: Floats
) -> Floats | None:
    """Return by how much each cluster moves the AUROC, shape [C]; see `clustered_se`.

    Args:
        auroc: The estimate.
        placement_positive: Per cluster, sum over its positives of the share of negatives below them, shape [C].
        positives: Per cluster, number of positives, shape [C].
        placement_negative: Per cluster, sum over its negatives of the share of positives above them, shape [C].
        negatives: Per cluster, number of negatives, shape [C].

    Returns:
        None with fewer than two clusters that hold a row.
    """
    clusters = int(((positives > 0) | (negatives > 0)).sum())
    if clusters < 2:
        return None
    deviation = (placement_positive - auroc * positives) / positives.sum()
    deviation = deviation + (placement_negative - auroc * negatives) / negatives.sum()
    return np.asarray(deviation * np.sqrt(clusters / (clusters - 1)))


def clustered_se(deviations: Floats | None) -> float | None:
    """Return the clustered DeLong standard error of an AUROC, or of a difference from the difference of deviations."""
    return None if deviations is None else float(np.sqrt((deviations**2).sum()))


def compute_auroc(scores: npt.ArrayLike, labels: npt.ArrayLike, clusters: npt.ArrayLike | None = None) -> Estimate:
    """Return the exact AUROC of arrays; with clusters also its standard error and interval.

    Args:
        scores: Any increasing function of probability that does not saturate, such as a logit, shape [n].
        labels: 0 or 1, shape [n].
        clusters: Cluster number of each row, shape [n], or None.

    Returns:
        `UNDEFINED` where only one class occurs.

    Raises:
        ValueError: If a score is not finite (ranks of NaN have no meaning), or a label is neither 0 nor 1.
    """
    s = np.asarray(scores, dtype=np.float64)
    y = checked_labels(labels, len(s))
    if not np.isfinite(s).all():
        raise ValueError(f"scores[{int(np.argmin(np.isfinite(s)))}] is not finite")
    distinct, index = np.unique(s, return_inverse=True)
    neg = np.bincount(index[~y], minlength=len(distinct))
    pos = np.bincount(index[y], minlength=len(distinct))
    auroc = auroc_of_counts(neg, pos)
    if auroc is None:
        return UNDEFINED
    if clusters is None:
        return Estimate(value=auroc)
    c = np.unique(np.asarray(clusters), return_inverse=True)[1]
    size = int(c.max()) + 1
    positive_place, negative_place = placements(neg)[index], 1 - placements(pos)[index]
    deviations = cluster_deviations(
        auroc,
        weighted_counts(c[y], positive_place[y], size),
        np.bincount(c[y], minlength=size).astype(np.float64),
        weighted_counts(c[~y], negative_place[~y], size),
        np.bincount(c[~y], minlength=size).astype(np.float64),
    )
    return normal_estimate(auroc, clustered_se(deviations), lowest=0.0, highest=1.0)
