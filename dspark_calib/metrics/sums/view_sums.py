"""The mergeable accumulator: everything a table of measures needs, kept apart by cluster and position.

Both views share it (`scored_rows`). Memory depends on clusters and bins, never on rows.
"""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import bin_indices, clamp
from dspark_calib.metrics.proper import log_losses
from dspark_calib.metrics.ranking import SCORE_BINS
from dspark_calib.metrics.rows.scored_rows import ScoredRows
from dspark_calib.metrics.smooth_ece import GRID, residual_grid

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSums:
    """Sums of one view under one set of temperatures; they add up, in any order and split.

    Attributes:
        counts: Rows by cluster, position, bin and label, int64 [C, γ, B, 2].
        predicted: Sum of clamped predictions, float64 [C, γ, B].
        squared_error: Sum of (p - y)², float64 [C, γ].
        log_loss: Sum of log losses in nats, float64 [C, γ].
        scores: Rows by group, position, label and score bin, int64 [G, γ, 2, 65536].
        residuals: Σ(y - p) on the grid of the smooth ECE, float64 [G, γ, 2001].
    """

    counts: Integers
    predicted: Floats
    squared_error: Floats
    log_loss: Floats
    scores: Integers
    residuals: Floats

    @classmethod
    def zeros(cls, clusters: int, groups: int, gamma: int, bins: int) -> "ViewSums":
        """Return sums of no rows."""
        return cls(
            counts=np.zeros((clusters, gamma, bins, 2), dtype=np.int64),
            predicted=np.zeros((clusters, gamma, bins)),
            squared_error=np.zeros((clusters, gamma)),
            log_loss=np.zeros((clusters, gamma)),
            scores=np.zeros((groups, gamma, 2, SCORE_BINS), dtype=np.int64),
            residuals=np.zeros((groups, gamma, GRID + 1)),
        )

    def add(self, part: "BlockSums") -> None:
        """Add the sums of one batch in place."""
        self.counts[part.present] += part.counts
        self.predicted[part.present] += part.predicted
        self.squared_error[part.present] += part.squared_error
        self.log_loss[part.present] += part.log_loss
        self.scores[part.groups] += part.scores
        self.residuals[part.groups] += part.residuals

    def merge(self, other: "ViewSums") -> None:
        """Add the sums of other rows in place."""
        for field in fields(ViewSums):
            total = getattr(self, field.name)
            total += getattr(other, field.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSums:
    """The sums of one batch, over its own clusters and groups; fields as in `ViewSums`.

    Attributes:
        present: Clusters of the batch, shape [c].
        groups: Groups of the batch, shape [g].
        counts: int64 [c, γ, B, 2].
        predicted: float64 [c, γ, B].
        squared_error: float64 [c, γ].
        log_loss: float64 [c, γ].
        scores: int64 [g, γ, 2, 65536].
        residuals: float64 [g, γ, 2001].
    """

    present: Integers
    groups: Integers
    counts: Integers
    predicted: Floats
    squared_error: Floats
    log_loss: Floats
    scores: Integers
    residuals: Floats


def sum_rows(rows: ScoredRows, group: npt.NDArray[np.int32], bins: int) -> BlockSums:
    """Sum one scored batch.

    Args:
        rows: Predictions and labels by position.
        group: Group number of each cluster, shape [C].
        bins: Equal-width bins.
    """
    size, gamma = len(rows.present), len(rows.positions)
    groups, group_of = np.unique(group[rows.present].astype(np.int64), return_inverse=True)
    part = BlockSums(
        present=rows.present,
        groups=groups,
        counts=np.empty((size, gamma, bins, 2), dtype=np.int64),
        predicted=np.empty((size, gamma, bins)),
        squared_error=np.empty((size, gamma)),
        log_loss=np.empty((size, gamma)),
        scores=np.empty((len(groups), gamma, 2, SCORE_BINS), dtype=np.int64),
        residuals=np.empty((len(groups), gamma, GRID + 1)),
    )
    for k, at in enumerate(rows.positions):
        p = clamp(at.predicted)
        cell = at.local * bins + bin_indices(p, bins)
        labelled = np.bincount(cell * 2 + at.label, minlength=size * bins * 2)
        part.counts[:, k] = labelled.reshape(size, bins, 2)
        part.predicted[:, k] = np.bincount(cell, weights=p, minlength=size * bins).reshape(size, bins)
        part.squared_error[:, k] = np.bincount(at.local, weights=(p - at.label) ** 2, minlength=size)
        part.log_loss[:, k] = np.bincount(at.local, weights=log_losses(at.log_survival, at.label), minlength=size)
        for g in range(len(groups)):
            own = slice(None) if len(groups) == 1 else group_of[at.local] == g
            code = at.label[own] * SCORE_BINS + at.score[own]
            part.scores[g, k] = np.bincount(code, minlength=2 * SCORE_BINS).reshape(2, SCORE_BINS)
            part.residuals[g, k] = residual_grid(p[own], at.label[own].astype(np.float64))
    return part
