"""The rows a fit looks at, in small blocks: whole, or seen at one position after the temperatures fixed so far."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.rows.judged_rows import BATCH_ROWS, JudgedBatch, JudgedRows, compact, rebatched
from dspark_calib.metrics.rows.passes import Pass, map_in_order, run_pass
from dspark_calib.metrics.rows.scored_rows import View
from dspark_calib.survival import sigmoid

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Part = TypeVar("Part")
Total = TypeVar("Total")

BLOCK_ROWS = BATCH_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBlock:
    """The rows of one block that carry a label at one position; arrays of shape [n].

    Attributes:
        logit: z_k in float64.
        prior: Prefix survival a_{k-1} under the temperatures fitted so far (1 in the conditional view).
        label: 0 or 1, float64.
        local: Index into `present`.
        present: Clusters of the block, shape [c].
    """

    logit: Floats
    prior: Floats
    label: Floats
    local: Integers
    present: Integers

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: Booleans) -> "PositionBlock":
        """Select rows by mask."""
        return PositionBlock(
            logit=self.logit[rows],
            prior=self.prior[rows],
            label=self.label[rows],
            local=self.local[rows],
            present=self.present,
        )


def join_blocks(blocks: list[PositionBlock]) -> PositionBlock:
    """Return the rows of all blocks, in order, as one."""
    place = [block.present[block.local] for block in blocks]
    present, local = compact(np.concatenate(place))
    return PositionBlock(
        logit=np.concatenate([b.logit for b in blocks]),
        prior=np.concatenate([b.prior for b in blocks]),
        label=np.concatenate([b.label for b in blocks]),
        local=local,
        present=present,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows of a block, all positions; `local` indexes `present`, the clusters of the block."""

    logits: npt.NDArray[np.float32]
    accepted: npt.NDArray[np.int16]
    observed: npt.NDArray[np.int16]
    local: Integers
    present: Integers

    def __len__(self) -> int:
        return len(self.accepted)

    def take(self, rows: Booleans) -> "RowBlock":
        """Select rows by mask."""
        return RowBlock(
            logits=self.logits[rows],
            accepted=self.accepted[rows],
            observed=self.observed[rows],
            local=self.local[rows],
            present=self.present,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChoice:
    """Which rows of a trace a fit looks at, and which labels count.

    Attributes:
        view: `cumulative` or `conditional`.
        number: Number of each cluster of the trace among those that take part, -1 for the others, shape [C].
        all_rows: Whether positions past the observed range count as rejected, as SGLang's fitter has it.
    """

    view: View
    number: Integers
    all_rows: bool

    @property
    def clusters(self) -> int:
        """Clusters that take part."""
        return int((self.number >= 0).sum())

    def labelled(self, block: RowBlock, k: int) -> Booleans:
        """Return which rows carry a label at position k (0-based) in the view, shape [n]."""
        rows = (block.observed > k) | self.all_rows
        return rows & (block.accepted >= k) if self.view == "conditional" else rows


class RowBlocks:
    """The blocks of chosen rows. Where the rows are in memory their prefix survival is too, else each pass makes it.

    Args:
        rows: Where the rows come from.
        choice: Which of them.
    """

    def __init__(self, rows: JudgedRows, choice: RowChoice) -> None:
        self._rows, self._choice = rows, choice
        self._blocks: list[RowBlock] | None = list(self._read()) if rows.kept else None
        self._prior: list[Floats] = []
        self._fixed: tuple[float, ...] = ()
        self._forget()

    @property
    def kept(self) -> bool:
        """Whether the blocks are in memory here."""
        return self._blocks is not None

    def over_rounds(self, pass_: Pass[RowBlock, Part, Total]) -> Total:
        """Run a pass over all rows with all positions."""
        return run_pass(pass_, self.blocks(), self._rows.threads)

    def over_position(self, fixed: tuple[float, ...], pass_: Pass[PositionBlock, Part, Total]) -> Total:
        """Run a pass over the rows that carry a label at the position after those whose temperatures are fixed."""
        return run_pass(pass_, self.positions(fixed), self._rows.threads)

    def blocks(self) -> Iterator[RowBlock]:
        """Yield all rows with all positions."""
        yield from self._read() if self._blocks is None else self._blocks

    def positions(self, fixed: tuple[float, ...]) -> Iterator[PositionBlock]:
        """Yield the rows that carry a label at the position after those whose temperatures are fixed."""
        if self._blocks is None:
            for block in self._read():
                yield self._at_position(block, self._survival(block, fixed, np.ones(len(block))), len(fixed))
            return
        self._go_to(self._blocks, fixed)
        for block, prior in zip(self._blocks, self._prior, strict=True):
            yield self._at_position(block, prior, len(fixed))

    def _forget(self) -> None:
        self._fixed = ()
        self._prior = [np.ones(len(b)) for b in self._blocks or ()]

    def _go_to(self, blocks: list[RowBlock], fixed: tuple[float, ...]) -> None:
        """Bring the prefix survival kept to the temperatures given; those that came before need not be done again."""
        done = len(self._fixed)
        if fixed[:done] != self._fixed:
            self._forget()
            done = 0

        def gone_on(pair: tuple[RowBlock, Floats]) -> Floats:
            return self._survival(pair[0], fixed, pair[1], done)

        if fixed != self._fixed:
            self._prior = list(map_in_order(gone_on, list(zip(blocks, self._prior, strict=True)), self._rows.threads))
            self._fixed = fixed

    def _survival(self, block: RowBlock, fixed: tuple[float, ...], prior: Floats, done: int = 0) -> Floats:
        """Multiply in place the prefix survival after `done` positions by the confidences of those that follow."""
        if self._choice.view == "cumulative":
            for k in range(done, len(fixed)):
                prior *= sigmoid(block.logits[:, k].astype(np.float64) / fixed[k])
        return prior

    def _at_position(self, block: RowBlock, prior: Floats, k: int) -> PositionBlock:
        rows = self._choice.labelled(block, k)
        chosen: Booleans | slice = slice(None) if rows.all() else rows
        return PositionBlock(
            logit=block.logits[chosen, k].astype(np.float64),
            prior=prior[chosen],
            label=(block.accepted[chosen] > k).astype(np.float64),
            local=block.local[chosen],
            present=block.present,
        )

    def _read(self) -> Iterator[RowBlock]:
        for batch in rebatched(self._chosen()):
            present, local = compact(self._choice.number[batch.cluster])
            yield RowBlock(
                logits=batch.logits, accepted=batch.accepted, observed=batch.observed, local=local, present=present
            )

    def _chosen(self) -> Iterator[JudgedBatch]:
        for batch in self._rows.batches():
            rows = self._choice.number[batch.cluster] >= 0
            yield batch if rows.all() else batch.take(rows)
