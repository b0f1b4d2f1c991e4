"""The rows of a sequential fit: which take part, how many carry a label, and the position at hand."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.rows.far_blocks import FarBlocks
from dspark_calib.calibration.rows.row_blocks import PositionBlock, RowBlock, RowBlocks, RowChoice
from dspark_calib.calibration.rows.sample import SAMPLE_ROUNDS, Sample
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.judged_rows import first_of_each
from dspark_calib.metrics.rows.passes import Pass
from dspark_calib.metrics.rows.scored_rows import View

if TYPE_CHECKING:
    from dspark_calib.metrics.bootstrap import Hashes

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Part = TypeVar("Part")
Total = TypeVar("Total")


class FitRows:
    """Rows of chosen clusters of a judged trace, seen in one view, position after position.

    Args:
        judged: The trace.
        view: `cumulative` or `conditional`.
        members: Which clusters take part, bool [C]; None means all.
        all_rows: Count positions past the observed range as rejected, as SGLang's fitter does.

    Attributes:
        gamma: γ.
        view: The view.
        hashes: Of the clusters that take part, uint64 [c].
        clusters: Their number.
        total: Rows, with a label or not.
        threads: Threads of every pass.
    """

    def __init__(
        self,
        judged: JudgedTrace,
        view: View,
        members: Booleans | None = None,
        *,
        all_rows: bool = False,
    ) -> None:
        self.gamma, self.view, self.threads = judged.gamma, view, judged.threads
        taking_part = np.ones(len(judged.clusters), dtype=bool) if members is None else members
        number = np.where(taking_part, np.cumsum(taking_part) - 1, -1)
        choice = RowChoice(view=view, number=number, all_rows=all_rows)
        self.hashes: Hashes = judged.clusters.hashes[taking_part]
        self.clusters = choice.clusters
        far = judged.shards
        self._blocks: RowBlocks | FarBlocks = RowBlocks(judged.rows, choice) if far is None else FarBlocks(far, choice)
        self._fixed: tuple[float, ...] = ()
        counts = self.over_rounds(CountPass(choice=choice, gamma=self.gamma))
        self.total, self._sizes, self._positives = int(counts.total), counts.sizes, counts.positives

    @property
    def kept(self) -> bool:
        """Whether the rows are in memory here."""
        return self._blocks.kept

    @property
    def count(self) -> int:
        """Rows that carry a label at the position at hand."""
        return int(self.cluster_sizes.sum())

    @property
    def cluster_sizes(self) -> Floats:
        """Rows of each cluster that carry a label at the position at hand, shape [c]."""
        return np.asarray(self._sizes[self.position])

    @property
    def positives(self) -> int:
        """Those of `count` whose label is 1."""
        return int(self._positives[self.position])

    @property
    def position(self) -> int:
        """The position at hand, 0-based: the number of temperatures fixed."""
        return len(self._fixed)

    def restart(self) -> None:
        """Go back to the first position."""
        self._fixed = ()

    def fix(self, temperature: float) -> None:
        """Fix the temperature of the position at hand and go to the next."""
        self._fixed = (*self._fixed, temperature)

    def over_position(self, pass_: Pass[PositionBlock, Part, Total]) -> Total:
        """Run a pass over the rows that carry a label at the position at hand."""
        return self._blocks.over_position(self._fixed, pass_)

    def over_rounds(self, pass_: Pass[RowBlock, Part, Total]) -> Total:
        """Run a pass over all rows with all positions."""
        return self._blocks.over_rounds(pass_)

    def sample(self) -> Sample:
        """Return the rows as arrays; of many, the first ones of each cluster."""
        limit = None if self.total <= SAMPLE_ROUNDS else max(SAMPLE_ROUNDS // self.clusters, 1)
        blocks = self.over_rounds(GatherPass(clusters=self.clusters, limit=limit)).blocks
        return Sample(
            logits=np.concatenate([b.logits for b in blocks]).astype(np.float64),
            accepted=np.concatenate([b.accepted for b in blocks]),
            observed=np.concatenate([b.observed for b in blocks]),
            cluster=np.concatenate([b.present[b.local] for b in blocks]).astype(np.int32),
            view=self.view,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Rows that a fit looks at.

    Attributes:
        sizes: With a label, by position and cluster, float64 [γ, c].
        positives: With label 1, by position, int64 [γ].
        total: With a label or not, int64 scalar array.
    """

    sizes: Floats
    positives: Integers
    total: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPass:
    """Counts rows.

    Attributes:
        choice: Which labels count.
        gamma: γ.
    """

    choice: RowChoice
    gamma: int

    def zero(self) -> Counts:
        """Return counts of no rows."""
        return Counts(
            sizes=np.zeros((self.gamma, self.choice.clusters)),
            positives=np.zeros(self.gamma, dtype=np.int64),
            total=np.zeros((), dtype=np.int64),
        )

    def part(self, block: RowBlock) -> tuple[RowBlock, Floats, Integers]:
        """Count a block."""
        sizes, positives = np.empty((self.gamma, len(block.present))), np.empty(self.gamma, dtype=np.int64)
        for k in range(self.gamma):
            labelled = self.choice.labelled(block, k)
            sizes[k] = np.bincount(block.local[labelled], minlength=len(block.present))
            positives[k] = (labelled & (block.accepted > k)).sum()
        return block, sizes, positives

    def add(self, total: Counts, part: tuple[RowBlock, Floats, Integers]) -> None:
        """Add a block."""
        block, sizes, positives = part
        total.sizes[:, block.present] += sizes
        total.positives[:] += positives
        total.total[...] += len(block)

    def merge(self, total: Counts, other: Counts) -> None:
        """Add the counts of other rows."""
        total.sizes[:] += other.sizes
        total.positives[:] += other.positives
        total.total[...] += other.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Rows as they come, and how many of each cluster there are so far, int64 [c]."""

    blocks: list[RowBlock]
    seen: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherPass:
    """Gathers rows.

    Attributes:
        clusters: c.
        limit: Rows wanted of each cluster, the first ones by row order; None wants all.
    """

    clusters: int
    limit: int | None

    def zero(self) -> Gathered:
        """Return no rows."""
        return Gathered(blocks=[], seen=np.zeros(self.clusters, dtype=np.int64))

    def part(self, block: RowBlock) -> RowBlock:
        """Return the block; which of its rows come first is not known before their turn."""
        return block

    def add(self, total: Gathered, part: RowBlock) -> None:
        """Add the wanted rows of a block."""
        if self.limit is not None:
            part = part.take(first_of_each(part.present[part.local], total.seen, self.limit))
        total.blocks.append(part)

    def merge(self, total: Gathered, other: Gathered) -> None:
        """Add the rows of a later part of the trace."""
        seen = total.seen + other.seen  # also those that the other left out
        for block in other.blocks:
            self.add(total, block)
        total.seen[:] = seen
