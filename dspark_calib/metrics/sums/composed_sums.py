"""The mergeable accumulator of composed labels: sums by cluster, and how they move with each conditional rate.

Memory depends on clusters, sets of clusters and bins, never on rows.
"""

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import bin_indices, clamp, weighted_counts
from dspark_calib.metrics.proper import log_losses
from dspark_calib.metrics.ranking import SCORE_BINS, placements
from dspark_calib.metrics.smooth_ece import GRID, residual_grid
from dspark_calib.metrics.sums.composed_rows import ComposedPosition

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedShape:
    """How many there are of what the sums are kept apart by: clusters C, sets G, positions γ and bins B."""

    clusters: int
    sets: int
    gamma: int
    bins: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlopeSums:
    """∂(sum over rows)/∂r_j(b') by set and position k; they add up.

    Attributes:
        label: Of Σ label by bin of a_k, float64 [G, γ, B, γ, B].
        squared_error: Of Σ squared error, float64 [G, γ, γ, B].
        log_loss: Of Σ log loss, float64 [G, γ, γ, B].
    """

    label: Floats
    squared_error: Floats
    log_loss: Floats

    @classmethod
    def zeros(cls, shape: ComposedShape) -> "SlopeSums":
        """Return sums of no rows."""
        by_rate = (shape.sets, shape.gamma, shape.gamma, shape.bins)
        return cls(
            label=np.zeros((shape.sets, shape.gamma, shape.bins, shape.gamma, shape.bins)),
            squared_error=np.zeros(by_rate),
            log_loss=np.zeros(by_rate),
        )

    @classmethod
    def of(cls, positions: tuple[ComposedPosition, ...], shape: ComposedShape) -> "SlopeSums":
        """Return the sums of one batch."""
        sums, sets, bins = cls.zeros(shape), shape.sets, shape.bins
        for k, at in enumerate(positions):
            p = clamp(at.predicted)
            cell = bin_indices(p, bins)
            for slope in at.slopes:
                s, p_row, j = at.log_survival[slope.rows], p[slope.rows], slope.position
                row = at.sets[slope.rows].astype(np.int64)
                code = (row * bins + cell[slope.rows]) * bins + slope.bins
                moved = weighted_counts(code, slope.factor, sets * bins * bins)
                sums.label[:, k, :, j] = moved.reshape(sets, bins, bins)
                code = row * bins + slope.bins
                # A label enters both scores linearly: (1-p)² - p² = 1 - 2p, and likewise the losses.
                error = slope.factor * (1 - 2 * p_row)
                sums.squared_error[:, k, j] = weighted_counts(code, error, sets * bins).reshape(sets, bins)
                gain = slope.factor * (log_losses(s, np.ones(len(s))) - log_losses(s, np.zeros(len(s))))
                sums.log_loss[:, k, j] = weighted_counts(code, gain, sets * bins).reshape(sets, bins)
        return sums

    def merge(self, other: "SlopeSums") -> None:
        """Add the sums of other rows in place."""
        for field in fields(SlopeSums):
            total = getattr(self, field.name)
            total += getattr(other, field.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedSums:
    """Sums of the composed cumulative view under one set of temperatures and rates; they add up.

    Attributes:
        rows: Rows by cluster, position and bin of a_k, int64 [C, γ, B].
        predicted: Sum of clamped predictions, float64 [C, γ, B].
        label: Sum of known and composed labels, float64 [C, γ, B].
        squared_error: Sum of label·(1-p)² + (1-label)·p², float64 [C, γ].
        log_loss: The same of the log losses, float64 [C, γ].
        scores: Sum of 1-label and of label by set, position and score bin, float64 [G, γ, 2, 65536].
        residuals: Σ(label - p) on the grid of the smooth ECE, float64 [G, γ, 2001].
        slopes: How the sums move with the rates.
    """

    rows: Integers
    predicted: Floats
    label: Floats
    squared_error: Floats
    log_loss: Floats
    scores: Floats
    residuals: Floats
    slopes: SlopeSums

    @classmethod
    def zeros(cls, shape: ComposedShape) -> "ComposedSums":
        """Return sums of no rows."""
        by_position = (shape.clusters, shape.gamma)
        by_bin = (*by_position, shape.bins)
        return cls(
            rows=np.zeros(by_bin, dtype=np.int64),
            predicted=np.zeros(by_bin),
            label=np.zeros(by_bin),
            squared_error=np.zeros(by_position),
            log_loss=np.zeros(by_position),
            scores=np.zeros((shape.sets, shape.gamma, 2, SCORE_BINS)),
            residuals=np.zeros((shape.sets, shape.gamma, GRID + 1)),
            slopes=SlopeSums.zeros(shape),
        )

    def merge(self, other: "ComposedSums") -> None:
        """Add the sums of other rows in place."""
        self.slopes.merge(other.slopes)
        for field in fields(ComposedSums):
            if field.name != "slopes":
                total = getattr(self, field.name)
                total += getattr(other, field.name)

    def add(self, positions: tuple[ComposedPosition, ...], slopes: SlopeSums) -> None:
        """Add the rows of one batch in place, and their slopes (`SlopeSums.of`, which a thread can make ahead)."""
        for k, at in enumerate(positions):
            p = clamp(at.predicted)
            self._add_by_cluster(k, at, p)
            for g in np.unique(at.sets):
                rows = slice(None) if len(self.scores) == 1 else at.sets == g
                for y, weight in enumerate((1 - at.label[rows], at.label[rows])):
                    self.scores[g, k, y] += weighted_counts(at.score[rows], weight, SCORE_BINS)
                self.residuals[g, k] += residual_grid(p[rows], at.label[rows])
        self.slopes.merge(slopes)

    def _add_by_cluster(self, k: int, at: ComposedPosition, p: Floats) -> None:
        present, local = np.unique(at.cluster, return_inverse=True)
        bins, size = self.rows.shape[2], len(present)
        cell = local * bins + bin_indices(p, bins)
        self.rows[present, k] += np.bincount(cell, minlength=size * bins).reshape(size, bins)
        self.predicted[present, k] += weighted_counts(cell, p, size * bins).reshape(size, bins)
        self.label[present, k] += weighted_counts(cell, at.label, size * bins).reshape(size, bins)
        error = at.label * (1 - p) ** 2 + (1 - at.label) * p**2
        self.squared_error[present, k] += weighted_counts(local, error, size)
        self.log_loss[present, k] += weighted_counts(local, _soft_log_losses(at), size)


def _soft_log_losses(at: ComposedPosition) -> Floats:
    ones = np.ones(len(at.label))
    accepted, rejected = log_losses(at.log_survival, ones), log_losses(at.log_survival, 0 * ones)
    return at.label * accepted + (1 - at.label) * rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedPlacements:
    """Sums for the clustered variance of the AUROC of composed labels; they add up.

    Attributes:
        by_cluster: Σ label · (share of the other class below), and Σ (1-label) · (share above), at index 1 and 0
            of the last axis, float64 [C, γ, 2].
        slopes: ∂/∂r_j(b') of Σ label · (share below) and of Σ label · (share above), float64 [G, γ, 2, γ, B].
    """

    by_cluster: Floats
    slopes: Floats

    @classmethod
    def zeros(cls, shape: ComposedShape) -> "ComposedPlacements":
        """Return sums of no rows."""
        return cls(
            by_cluster=np.zeros((shape.clusters, shape.gamma, 2)),
            slopes=np.zeros((shape.sets, shape.gamma, 2, shape.gamma, shape.bins)),
        )

    def merge(self, other: "ComposedPlacements") -> None:
        """Add the sums of other rows in place."""
        np.add(self.by_cluster, other.by_cluster, out=self.by_cluster)
        np.add(self.slopes, other.slopes, out=self.slopes)


class ComposedRanks:
    """Looks up, for each row, the share of the other class it ranks above; made from finished `ComposedSums`.

    Args:
        sums: Sums over all rows.
    """

    def __init__(self, sums: ComposedSums) -> None:
        # [G, γ, 2, S]: at 1 the share of (1-label) below a score, at 0 the share of label above it.
        self._table = np.empty_like(sums.scores)
        for g, k in np.ndindex(*sums.scores.shape[:2]):
            self._table[g, k, 1] = placements(sums.scores[g, k, 0])
            self._table[g, k, 0] = 1 - placements(sums.scores[g, k, 1])
        np.nan_to_num(self._table, copy=False)  # a class that is missing leaves no AUROC anyway

    def add(self, total: ComposedPlacements, positions: tuple[ComposedPosition, ...]) -> None:
        """Add the rows of one batch to `total` in place."""
        sets, _, _, _, bins = total.slopes.shape
        for k, at in enumerate(positions):
            present, local = np.unique(at.cluster, return_inverse=True)
            for y, weight in enumerate((1 - at.label, at.label)):
                share = self._table[at.sets, k, y, at.score]
                total.by_cluster[present, k, y] += weighted_counts(local, weight * share, len(present))
                for slope in at.slopes:
                    code = at.sets[slope.rows].astype(np.int64) * bins + slope.bins
                    moved = weighted_counts(code, slope.factor * share[slope.rows], sets * bins)
                    total.slopes[:, k, y, slope.position] += moved.reshape(sets, bins)
