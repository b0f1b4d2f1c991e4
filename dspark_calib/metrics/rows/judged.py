"""A trace ready for statistics: its clusters, its counts, and its rows for as many passes as it takes."""

import copy
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeVar

import numpy as np

from dspark_calib.errors import InsufficientData
from dspark_calib.metrics.acceptance import AcceptanceSums, RoundFacts, round_facts
from dspark_calib.metrics.rows.judged_rows import (
    BATCH_ROWS,
    JudgedBatch,
    JudgedRows,
    first_of_each,
    fits_in_memory,
    judge,
    rebatched,
)
from dspark_calib.metrics.rows.numbering import ClusterTable, Grouping, Numbering
from dspark_calib.metrics.rows.passes import Pass, Progress, run_pass
from dspark_calib.metrics.rows.shards import BatchTask, Shards, merged
from dspark_calib.trace.store import Trace

Part = TypeVar("Part")
Total = TypeVar("Total")


class JudgedTrace:
    """A trace ready for statistics: read once to number clusters and count, then as often as needed.

    Args:
        trace: Any trace.
        by: Column whose values form the groups, or None for one group.
        threads: Threads of every pass over the rows; sums are added in row order and do not depend on it.

    Attributes:
        clusters: The cluster table.
        acceptance: Counts that need no confidence.
        rounds: Number of rows.
        rows: The rows.
        gamma: γ.
        threads: Threads of every pass.
        shards: Where the passes run, or None for here.

    Raises:
        InsufficientData: If the trace holds no rounds.
    """

    def __init__(self, trace: Trace, by: Grouping | None = None, threads: int = 2) -> None:
        self.gamma, self.rounds, self.threads = trace.gamma, trace.num_rounds, threads
        self.shards: Shards | None = None
        if self.rounds == 0:
            raise InsufficientData(f"{trace.name} holds no rounds; collect more prompts")
        numbering = Numbering(trace.provenance.prompts, by)
        facts: list[RoundFacts] = []
        self._trace, self._starts = trace, list[Numbering]()
        batches = rebatched(_judged(trace, numbering, facts, self._starts))
        kept = list(batches) if fits_in_memory(trace) else None
        deque(batches, maxlen=0)  # to the end, for the numbers and facts
        self.clusters: ClusterTable = numbering.table()
        self.acceptance = AcceptanceSums.of(facts, len(self.clusters), self.gamma)
        self.rows = JudgedRows(trace, self._starts[0], threads, kept)

    def batches(self) -> Iterator[JudgedBatch]:
        """Yield the rows in order, at most 65,536 at a time."""
        yield from self.rows.batches()

    def sums(self, pass_: Pass[JudgedBatch, Part, Total], step: str = "", progress: Progress | None = None) -> Total:
        """Run a pass over all rows.

        Args:
            pass_: What to sum.
            step: Its name for `progress`.
            progress: Called with the name of the step and the rows done.
        """
        if self.shards is None:
            return run_pass(pass_, _told(self.batches(), step, progress), self.threads)
        total: Total = merged(pass_, self.shards.map(BatchTask(pass_)))
        if progress is not None:
            progress(step, self.rounds)
        return total

    def shares(self, most: int) -> list[JudgedRows]:
        """Return the rows in shares of one or more files, at most so many, each for one thread."""
        sources = self._trace.sources
        count = min(most, len(sources))
        edges = [len(sources) * i // count for i in range(count + 1)]
        small = fits_in_memory(self._trace, count)
        return [JudgedRows(self._trace.only(sources[a:b]), self._starts[a], 1, small=small) for a, b in pairwise(edges)]

    def first_rounds(self, limit: int) -> "JudgedTrace":
        """Return the same trace in memory with no more than so many rounds of each cluster, the first by row order."""
        other, seen = copy.copy(self), np.zeros(len(self.clusters), dtype=np.int64)
        some = (batch.take(first_of_each(batch.cluster, seen, limit)) for batch in self.batches())
        kept = list(rebatched(some))
        other.rows, other.rounds, other.shards = self.rows.kept_as(kept), sum(map(len, kept)), None
        return other

    def on(self, shards: Shards) -> "JudgedTrace":
        """Return the same trace, whose passes run on the shards."""
        other = copy.copy(self)
        other.shards = shards
        return other


def _judged(
    trace: Trace, numbering: Numbering, facts: list[RoundFacts], starts: list[Numbering]
) -> Iterator[JudgedBatch]:
    """Yield the rows; note the facts of each batch, and where the numbering stood before each file."""
    for source in trace.sources:
        starts.append(numbering.again())
        for rounds in trace.only([source]).batches(optional=(), batch_rows=BATCH_ROWS):
            batch = judge(rounds, numbering)
            facts.append(round_facts(rounds, batch.cluster))
            yield batch


def _told(batches: Iterator[JudgedBatch], step: str, progress: Progress | None) -> Iterator[JudgedBatch]:
    done = 0
    for batch in batches:
        yield batch
        done += len(batch)
        if progress is not None:
            progress(step, done)
