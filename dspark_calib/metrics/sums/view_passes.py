"""The two passes that fill the sums of one view: histograms first, then placements among them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.judged_rows import JudgedBatch
from dspark_calib.metrics.rows.passes import Progress
from dspark_calib.metrics.rows.scored_rows import View, score_rows
from dspark_calib.metrics.sums.placements import Placements, PlacementTables
from dspark_calib.metrics.sums.view_sums import BlockSums, ViewSums, sum_rows

Floats = npt.NDArray[np.float64]


def sum_view(
    judged: JudgedTrace, view: View, temperatures: Floats | None, *, bins: int, progress: Progress | None = None
) -> tuple[ViewSums, Placements]:
    """Return all sums of one view.

    Args:
        judged: The rows.
        view: `cumulative` or `conditional`.
        temperatures: Shape [γ], [C, γ] or None; see `score_rows`.
        bins: Equal-width bins.
        progress: Called with the name of the step and the rows done.
    """
    table = judged.clusters
    histograms = ViewPass(
        view=view,
        temperatures=temperatures,
        group=table.group,
        groups=len(table.group_names),
        gamma=judged.gamma,
        bins=bins,
    )
    sums = judged.sums(histograms, f"measure {view}", progress)
    ranks = RankPass(
        view=view, temperatures=temperatures, tables=PlacementTables(sums, table.group), clusters=len(table)
    )
    return sums, judged.sums(ranks, f"rank {view}", progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPass:
    """Sums of one view.

    Attributes:
        view: `cumulative` or `conditional`.
        temperatures: Shape [γ], [C, γ] or None; see `score_rows`.
        group: Group number of each cluster, shape [C].
        groups: Number of groups.
        gamma: γ.
        bins: Equal-width bins.
    """

    view: View
    temperatures: Floats | None
    group: npt.NDArray[np.int32]
    groups: int
    gamma: int
    bins: int

    def zero(self) -> ViewSums:
        """Return sums of no rows."""
        return ViewSums.zeros(len(self.group), self.groups, self.gamma, self.bins)

    def part(self, batch: JudgedBatch) -> BlockSums:
        """Score and sum a batch."""
        return sum_rows(score_rows(batch, self.view, self.temperatures), self.group, self.bins)

    def add(self, total: ViewSums, part: BlockSums) -> None:
        """Add a batch."""
        total.add(part)

    def merge(self, total: ViewSums, other: ViewSums) -> None:
        """Add the sums of other rows."""
        total.merge(other)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPass:
    """Placements of the rows among the finished histograms of the same view.

    Attributes:
        view: `cumulative` or `conditional`.
        temperatures: As in the pass that made the histograms.
        tables: Made from them.
        clusters: C.
    """

    view: View
    temperatures: Floats | None
    tables: PlacementTables
    clusters: int

    def zero(self) -> Placements:
        """Return sums of no rows."""
        return Placements.zeros(self.clusters, self.tables.gamma)

    def part(self, batch: JudgedBatch) -> tuple[npt.NDArray[np.int64], Placements]:
        """Score and place a batch; returns its clusters too."""
        rows = score_rows(batch, self.view, self.temperatures)
        return rows.present, self.tables.sum_rows(rows)

    def add(self, total: Placements, part: tuple[npt.NDArray[np.int64], Placements]) -> None:
        """Add a batch."""
        present, placements = part
        total.own[present] += placements.own
        total.overall[present] += placements.overall

    def merge(self, total: Placements, other: Placements) -> None:
        """Add the sums of other rows."""
        total.merge(other)
