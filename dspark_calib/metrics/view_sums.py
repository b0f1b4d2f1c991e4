"""The mergeable accumulator: everything a table of measures needs, kept apart by cluster and position.

Two views share it. Cumulative: prefix survival a_k against prefix acceptance. Conditional: confidence c_k
among the rounds whose draft k was judged. Memory depends on clusters and bins, never on rows.
"""

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import bin_indices, clamp
from dspark_calib.metrics.judged import JudgedBatch
from dspark_calib.metrics.proper import log_losses
from dspark_calib.metrics.ranking import SCORE_BINS, score_bins
from dspark_calib.metrics.smooth_ece import GRID, residual_grid
from dspark_calib.survival import scaled_logits

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

View = Literal["cumulative", "conditional"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSums:
    """Sums of one view under one set of temperatures; they add up under `+`, in any order and split.

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

    def __add__(self, other: "ViewSums") -> "ViewSums":
        return ViewSums(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(ViewSums)})

    def add(self, rows: "ScoredRows", group: npt.NDArray[np.int32]) -> None:
        """Add the rows of one batch in place.

        Args:
            rows: Predictions and labels by position.
            group: Group number of each cluster, shape [C].
        """
        bins = self.counts.shape[2]
        for k, at in enumerate(rows.positions):
            present, local = np.unique(at.cluster, return_inverse=True)
            size = len(present)
            p = clamp(at.predicted)
            cell = local * bins + bin_indices(p, bins)
            labelled = np.bincount(cell * 2 + at.label, minlength=size * bins * 2)
            self.counts[present, k] += labelled.reshape(size, bins, 2)
            self.predicted[present, k] += np.bincount(cell, weights=p, minlength=size * bins).reshape(size, bins)
            error = np.bincount(local, weights=(p - at.label) ** 2, minlength=size)
            self.squared_error[present, k] += error
            loss = log_losses(at.log_survival, at.label)
            self.log_loss[present, k] += np.bincount(local, weights=loss, minlength=size)
            self._add_by_group(k, at, p, group[present][local])

    def _add_by_group(self, k: int, at: "ScoredPosition", p: Floats, group: npt.NDArray[np.int32]) -> None:
        for g in np.unique(group):
            rows = slice(None) if len(self.scores) == 1 else group == g
            code = at.label[rows] * SCORE_BINS + at.score[rows]
            self.scores[g, k] += np.bincount(code, minlength=2 * SCORE_BINS).reshape(2, SCORE_BINS)
            self.residuals[g, k] += residual_grid(p[rows], at.label[rows].astype(np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPosition:
    """The rows of one batch that carry a label at one position; arrays of shape [n].

    Attributes:
        predicted: Probability, float64.
        log_survival: Its logarithm, a sum of log-sigmoids.
        score: Score bin for ranks.
        label: 0 or 1.
        cluster: Cluster number.
    """

    predicted: Floats
    log_survival: Floats
    score: Integers
    label: Integers
    cluster: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRows:
    """One batch scored in one view, position by position."""

    positions: tuple[ScoredPosition, ...]


def score_rows(batch: JudgedBatch, view: View, temperatures: npt.ArrayLike | None) -> ScoredRows:
    """Score one batch.

    Args:
        batch: n rounds.
        view: `cumulative` or `conditional`.
        temperatures: Shape [γ], or [C, γ] to give each cluster its own (held-out) temperatures, or None for 1.
    """
    log_c, c = _log_and_plain_confidence(batch, temperatures)
    if view == "cumulative":
        np.cumsum(log_c, axis=0, out=log_c)
        np.cumprod(c, axis=0, out=c)
    positions = []
    for k in range(len(c)):
        rows = batch.observed > k
        if view == "conditional":
            rows &= batch.accepted >= k
        chosen = slice(None) if rows.all() else rows
        s = log_c[k][chosen]
        positions.append(
            ScoredPosition(
                predicted=c[k][chosen],
                log_survival=s,
                score=score_bins(s),
                label=(batch.accepted[chosen] > k).astype(np.int64),
                cluster=batch.cluster[chosen],
            )
        )
    return ScoredRows(positions=tuple(positions))


def _log_and_plain_confidence(batch: JudgedBatch, temperatures: npt.ArrayLike | None) -> tuple[Floats, Floats]:
    """Return log c and c, shape [γ, n]; one exponential serves both (see `survival.sigmoid`, `log_sigmoid`)."""
    z = _scaled(batch, temperatures)
    e = np.exp(-np.abs(z))
    c = np.where(z >= 0, 1.0, e) / (1.0 + e)
    return np.minimum(z, 0.0) - np.log1p(e), c


def confidences(batch: JudgedBatch, temperatures: npt.ArrayLike | None) -> Floats:
    """Return c_k of every round, shape [γ, n]."""
    return _log_and_plain_confidence(batch, temperatures)[1]


def _scaled(batch: JudgedBatch, temperatures: npt.ArrayLike | None) -> Floats:
    t = None if temperatures is None else np.asarray(temperatures, dtype=np.float64)
    if t is not None and t.ndim == 2:
        return np.ascontiguousarray((batch.logits.astype(np.float64) / t[batch.cluster]).T)
    return np.ascontiguousarray(scaled_logits(batch.logits, t).T)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Sums for the clustered variance of AUROC; they add up under `+`.

    Attributes:
        own: Per cluster, position and label: sum of placements within the cluster's own group, float64 [C, γ, 2].
        overall: The same within all rows, float64 [C, γ, 2].
    """

    own: Floats
    overall: Floats

    def __add__(self, other: "Placements") -> "Placements":
        return Placements(own=self.own + other.own, overall=self.overall + other.overall)


class PlacementTables:
    """Looks up, for each row, the share of the other class it ranks above; made from finished `ViewSums`.

    Args:
        sums: Sums over all rows.
        group: Group number of each cluster, shape [C].
    """

    def __init__(self, sums: ViewSums, group: npt.NDArray[np.int32]) -> None:
        self._group = group
        self._own = _placement_table(sums.scores)
        self._overall = self._own[0] if len(sums.scores) == 1 else _placement_table(sums.scores.sum(axis=0))

    def add(self, total: Placements, rows: ScoredRows) -> None:
        """Add the rows of one batch to `total` in place."""
        for k, at in enumerate(rows.positions):
            present, local = np.unique(at.cluster, return_inverse=True)
            code, size = local * 2 + at.label, len(present)
            overall = self._overall[k, at.label, at.score]
            total.overall[present, k] += np.bincount(code, weights=overall, minlength=size * 2).reshape(size, 2)
            if len(self._own) > 1:
                own = self._own[self._group[at.cluster], k, at.label, at.score]
                total.own[present, k] += np.bincount(code, weights=own, minlength=size * 2).reshape(size, 2)


def _placement_table(scores: Integers) -> Floats:
    """Return the placement of a row with label y in bin s: negatives below it (y = 1), positives above it (y = 0)."""
    counts = scores.astype(np.float64)
    totals = np.maximum(counts.sum(axis=-1, keepdims=True), 1.0)
    below = (np.cumsum(counts, axis=-1) - counts / 2) / totals
    table = np.empty_like(below)
    table[..., 1, :] = below[..., 0, :]
    table[..., 0, :] = 1.0 - below[..., 1, :]
    return np.asarray(table, dtype=np.float64)
