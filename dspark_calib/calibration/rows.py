"""The rows a fit looks at: those of chosen clusters, in small blocks, position by position.

A sequential fit moves left to right; `FitRows` keeps the prefix survival of the positions already fitted,
in memory where the rows are, otherwise computed again on each pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.sample import Sample, first_of_each
from dspark_calib.metrics.judged import JudgedBatch, JudgedTrace
from dspark_calib.metrics.passes import map_in_order
from dspark_calib.metrics.view_sums import View
from dspark_calib.survival import sigmoid

if TYPE_CHECKING:
    from dspark_calib.metrics.bootstrap import Hashes

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

BLOCK_ROWS = 65_536  # threads seldom wait for the interpreter's lock; smaller blocks were slower on two


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBlock:
    """The rows of one block that carry a label at one position; arrays of shape [n].

    Attributes:
        magnitude: |z_k| in float64.
        positive: Whether z_k ≥ 0.
        prior: Prefix survival a_{k-1} under the temperatures fitted so far (1 in the conditional view).
        label: 0 or 1, float64.
        local: Index into `present`.
        present: Clusters of the block, shape [c].
    """

    magnitude: Floats
    positive: Booleans
    prior: Floats
    label: Floats
    local: Integers
    present: Integers

    def __len__(self) -> int:
        return len(self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows of a block, all positions; `local` indexes `present`, the clusters of the block."""

    logits: npt.NDArray[np.float32]
    accepted: npt.NDArray[np.int16]
    observed: npt.NDArray[np.int16]
    local: Integers
    present: Integers


class FitRows:
    """Rows of chosen clusters of a judged trace, seen in one view.

    Args:
        judged: The trace.
        view: `cumulative` or `conditional`.
        members: Which clusters take part, bool [C]; None means all.
        row_limit: Rows kept of each cluster, the first ones by row order; None means all.
        all_rows: Count positions past the observed range as rejected, as SGLang's fitter does.

    Attributes:
        gamma: γ.
        view: The view.
        hashes: Of the clusters that take part, uint64 [c].
        clusters: Their number.
        threads: Threads of every pass.
        total: Rows, with a label or not.
    """

    def __init__(
        self,
        judged: JudgedTrace,
        view: View,
        members: Booleans | None = None,
        row_limit: int | None = None,
        *,
        all_rows: bool = False,
    ) -> None:
        self.gamma, self.view, self._all_rows = judged.gamma, view, all_rows
        self._judged, self._row_limit, self.threads = judged, row_limit, judged.threads
        taking_part = np.ones(len(judged.clusters), dtype=bool) if members is None else members
        self._number = np.where(taking_part, np.cumsum(taking_part) - 1, -1)
        self.hashes: Hashes = judged.clusters.hashes[taking_part]
        self.clusters = int(taking_part.sum())
        self._fixed: list[float] = []
        keep = judged.cached or row_limit is not None
        self._blocks: list[RowBlock] | None = list(self._read()) if keep else None
        self._prior: list[Floats] | None = None
        self.total = 0
        self._sizes, self._positives = self._count()
        self.restart()

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

    def restart(self, fixed: tuple[float, ...] = ()) -> None:
        """Go back to the first position, or to the one after the temperatures given."""
        self._fixed = []
        if self._blocks is not None:
            self._prior = [np.ones(len(b.accepted)) for b in self._blocks]
        for temperature in fixed:
            self.fix(temperature)

    def fix(self, temperature: float) -> None:
        """Fix the temperature of the position at hand and go to the next."""
        if self._prior is not None and self._blocks is not None and self.view == "cumulative":
            k = self.position

            def confidence(block: RowBlock) -> Floats:
                return sigmoid(block.logits[:, k].astype(np.float64) / temperature)

            for prior, c in zip(self._prior, map_in_order(confidence, self._blocks, self.threads), strict=True):
                prior *= c  # noqa: PLW2901 - in place
        self._fixed.append(temperature)

    def sample(self) -> Sample:
        """Return the rows as arrays."""
        blocks = list(self.whole_blocks())
        return Sample(
            logits=np.concatenate([b.logits for b in blocks]).astype(np.float64),
            accepted=np.concatenate([b.accepted for b in blocks]),
            observed=np.concatenate([b.observed for b in blocks]),
            cluster=np.concatenate([b.present[b.local] for b in blocks]).astype(np.int32),
            view=self.view,
        )

    def whole_blocks(self) -> Iterator[RowBlock]:
        """Yield all rows with all positions."""
        yield from self._read() if self._blocks is None else self._blocks

    def blocks(self) -> Iterator[PositionBlock]:
        """Yield the rows that carry a label at the position at hand."""
        if self._blocks is not None and self._prior is not None:
            for block, prior in zip(self._blocks, self._prior, strict=True):
                yield self._at_position(block, prior)
            return
        for block in self._read():
            yield self._at_position(block, self._computed_prior(block))

    def _computed_prior(self, block: RowBlock) -> Floats:
        prior = np.ones(len(block.accepted))
        if self.view == "cumulative":
            for k, temperature in enumerate(self._fixed):
                prior *= sigmoid(block.logits[:, k].astype(np.float64) / temperature)
        return prior

    def _count(self) -> tuple[Floats, Integers]:
        """Count the rows of each position and cluster, shape [γ, c], and those with label 1, shape [γ]."""
        sizes, positives = np.zeros((self.gamma, self.clusters)), np.zeros(self.gamma, dtype=np.int64)
        for block in self.whole_blocks():
            self.total += len(block.accepted)
            for k in range(self.gamma):
                labelled = self._labelled(block, k)
                part = np.bincount(block.local[labelled], minlength=len(block.present))
                sizes[k, block.present] += part
                positives[k] += int((labelled & (block.accepted > k)).sum())
        return sizes, positives

    def _labelled(self, block: RowBlock, k: int) -> Booleans:
        rows = (block.observed > k) | self._all_rows
        return rows & (block.accepted >= k) if self.view == "conditional" else rows

    def _at_position(self, block: RowBlock, prior: Floats) -> PositionBlock:
        k = self.position
        rows = self._labelled(block, k)
        chosen: Booleans | slice = slice(None) if rows.all() else rows
        z = block.logits[chosen, k].astype(np.float64)
        return PositionBlock(
            magnitude=np.abs(z),
            positive=z >= 0,
            prior=prior[chosen],
            label=(block.accepted[chosen] > k).astype(np.float64),
            local=block.local[chosen],
            present=block.present,
        )

    def _read(self) -> Iterator[RowBlock]:
        seen = np.zeros(self.clusters, dtype=np.int64) if self._row_limit is not None else None
        for batch in self._judged.batches():
            numbers = self._number[batch.cluster]
            rows = numbers >= 0
            if seen is not None and self._row_limit is not None:
                rows &= first_of_each(numbers, seen, self._row_limit)
            kept = batch if rows.all() else batch.take(rows)
            for start in range(0, len(kept), BLOCK_ROWS):
                yield self._block(kept.take(slice(start, start + BLOCK_ROWS)))

    def _block(self, batch: JudgedBatch) -> RowBlock:
        present, local = np.unique(self._number[batch.cluster], return_inverse=True)
        return RowBlock(
            logits=batch.logits, accepted=batch.accepted, observed=batch.observed, local=local, present=present
        )
