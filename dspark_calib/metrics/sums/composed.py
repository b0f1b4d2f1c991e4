"""Cumulative measures of rounds that a scheduler cut: composed from the conditional curve.

Which rounds carry a label at position k then depends on their confidence, so prefix acceptance among them says nothing
of all rounds, and filling the unknown labels with zeros says less. Conditional acceptance on judged drafts stays valid
for a policy that does not look ahead. A label that the scheduler hid is therefore composed as Π r_i(c_i) over the
positions it held back, with r_i the observed rate in the bin of c_i (`composed_rows`), over the rounds whose
confidences all lie in bins that were judged. Behind a cut this takes acceptance to depend on the past through the
confidence of the position alone, and within a bin to be constant. Where nothing was judged there is no number.

Uncertainty: the rates are estimates too. Each cluster's sums are shifted by what its own judged drafts do to the rates
and these, to first order, to the sums of all rows. The shifts cancel over the clusters, so no value changes, and every
interval, floor and paired difference made from sums by cluster then holds the uncertainty of the rates.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bootstrap import Hashes
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.judged_rows import JudgedBatch
from dspark_calib.metrics.rows.passes import Progress
from dspark_calib.metrics.scoring import GroupSums
from dspark_calib.metrics.sums.composed_rows import ComposedPosition, RateSets, compose_rows
from dspark_calib.metrics.sums.composed_sums import (
    ComposedPlacements,
    ComposedRanks,
    ComposedShape,
    ComposedSums,
    SlopeSums,
)
from dspark_calib.metrics.sums.view_sums import ViewSums

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MIN_JUDGED = 10  # rows in a bin before its rate serves in a product


@dataclass(frozen=True, slots=True)
class ComposedView:
    """The composed cumulative view of a trace: all rounds with their common rates, each group with its own.

    Attributes:
        conditional: Rows of the conditional view by cluster, position, bin and label, int64 [C, γ, B, 2].
        whole: Over all rounds.
        by_group: With the rates of each group, or None where there is only one.
    """

    conditional: Integers
    whole: "_Side"
    by_group: "_Side | None"

    @classmethod
    def of(
        cls,
        judged: JudgedTrace,
        conditional: ViewSums,
        temperatures: npt.ArrayLike | None,
        progress: Progress | None = None,
    ) -> "ComposedView":
        """Compose a trace.

        Args:
            judged: The trace.
            conditional: Sums of its conditional view under the same temperatures.
            temperatures: Shape [γ], [C, γ] or None; see `score_rows`.
            progress: Called with the name of the step and the rows done.
        """

        def side(set_of: npt.NDArray[np.int32], sets: int) -> _Side:
            by_set = np.stack([conditional.counts[set_of == s].sum(axis=0) for s in range(sets)])
            curves = RateSets(rates=observed_rates(by_set), set_of=set_of)
            return _Side(curves, *sum_composed(judged, curves, temperatures, progress=progress))

        group, groups = judged.clusters.group, len(judged.clusters.group_names)
        whole = side(np.zeros_like(group), 1)
        return cls(conditional.counts, whole, side(group, groups) if groups > 1 else None)

    def select(self, members: npt.NDArray[np.bool_], group: int, hashes: Hashes) -> GroupSums:
        """Take the clusters of one group, each with its influence through the rates.

        Args:
            members: Clusters of the group, bool [C].
            group: Its number, or -1 for all rows.
            hashes: Of the members.
        """
        side, number = (self.whole, 0) if group < 0 or self.by_group is None else (self.by_group, group)
        sums, places = side.sums, side.placements
        moved = _rate_influence(self.conditional[members], side.curves.rates[number])

        def shift(slopes: Floats) -> Floats:  # slopes: [..., γ, B] → [c, ...]
            return np.asarray(np.tensordot(moved, slopes, axes=([1, 2], [-2, -1])))

        place = places.by_cluster[members]
        place[..., 1] += shift(places.slopes[number, :, 1])
        place[..., 0] -= shift(places.slopes[number, :, 0])
        return GroupSums(
            rows=sums.rows[members],
            positives=sums.label[members] + shift(sums.slopes.label[number]),
            predicted=sums.predicted[members],
            squared_error=sums.squared_error[members] + shift(sums.slopes.squared_error[number]),
            log_loss=sums.log_loss[members] + shift(sums.slopes.log_loss[number]),
            scores=sums.scores[number],
            residuals=sums.residuals[number],
            placements=place,
            hashes=hashes,
            composed=True,
        )


@dataclass(frozen=True, slots=True)
class _Side:
    """One division of the clusters into sets with rates of their own, and the sums composed from them."""

    curves: RateSets
    sums: ComposedSums
    placements: ComposedPlacements


def observed_rates(counts: Integers) -> Floats:
    """Return the observed rate of each cell, NaN where fewer than ten rows were judged.

    Args:
        counts: Rows by … and label, shape [..., 2].
    """
    n = counts.sum(axis=-1).astype(np.float64)
    return np.where(n >= MIN_JUDGED, counts[..., 1] / np.maximum(n, 1), np.nan)


def _rate_influence(counts: Integers, rates: Floats) -> Floats:
    """Return by how much each cluster moves each rate, (y - r·n) / N; it sums to 0 over the clusters.

    Args:
        counts: Judged rows by cluster, position, bin and label, shape [c, γ, B, 2].
        rates: Shape [γ, B]; a cell without a rate is in no product and moves nothing.
    """
    n = counts.sum(axis=-1)
    known = np.isfinite(rates)
    deviation = counts[..., 1] - n * np.where(known, rates, 0.0)
    return np.asarray(np.where(known, deviation, 0.0) / np.maximum(n.sum(axis=0), 1))


def sum_composed(
    judged: JudgedTrace,
    curves: RateSets,
    temperatures: npt.ArrayLike | None,
    *,
    progress: Progress | None = None,
) -> tuple[ComposedSums, ComposedPlacements]:
    """Return all composed sums: one pass for the histograms, one for placements among them."""
    sets, gamma, bins = curves.rates.shape
    shape = ComposedShape(clusters=len(judged.clusters), sets=sets, gamma=gamma, bins=bins)
    sums = judged.sums(ComposePass(curves, temperatures, shape), "compose", progress)
    ranks = ComposedRankPass(curves, temperatures, shape, ComposedRanks(sums))
    return sums, judged.sums(ranks, "rank composed", progress)


@dataclass(frozen=True, slots=True)
class ComposePass:
    """Sums of the composed view.

    Attributes:
        curves: Rates by set.
        temperatures: As for `score_rows`.
        shape: Of the sums.
    """

    curves: RateSets
    temperatures: npt.ArrayLike | None
    shape: ComposedShape

    def zero(self) -> ComposedSums:
        """Return sums of no rows."""
        return ComposedSums.zeros(self.shape)

    def part(self, batch: JudgedBatch) -> tuple[tuple[ComposedPosition, ...], SlopeSums]:
        """Compose a batch."""
        positions = compose_rows(batch, self.curves, self.temperatures)
        return positions, SlopeSums.of(positions, self.shape)

    def add(self, total: ComposedSums, part: tuple[tuple[ComposedPosition, ...], SlopeSums]) -> None:
        """Add a batch."""
        total.add(*part)

    def merge(self, total: ComposedSums, other: ComposedSums) -> None:
        """Add the sums of other rows."""
        total.merge(other)


@dataclass(frozen=True, slots=True)
class ComposedRankPass:
    """Placements of the rows among the finished histograms of the composed view.

    Attributes:
        curves: Rates by set.
        temperatures: As for `score_rows`.
        shape: Of the sums.
        ranks: Made from them.
    """

    curves: RateSets
    temperatures: npt.ArrayLike | None
    shape: ComposedShape
    ranks: ComposedRanks

    def zero(self) -> ComposedPlacements:
        """Return sums of no rows."""
        return ComposedPlacements.zeros(self.shape)

    def part(self, batch: JudgedBatch) -> tuple[ComposedPosition, ...]:
        """Compose a batch."""
        return compose_rows(batch, self.curves, self.temperatures)

    def add(self, total: ComposedPlacements, part: tuple[ComposedPosition, ...]) -> None:
        """Add a batch."""
        self.ranks.add(total, part)

    def merge(self, total: ComposedPlacements, other: ComposedPlacements) -> None:
        """Add the sums of other rows."""
        total.merge(other)
