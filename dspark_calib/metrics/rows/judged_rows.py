"""Rounds reduced to what statistics need: logits, labels and the number of each row's cluster, in bounded memory.

Up to a few hundred megabytes they are kept; more are read again on each pass, so that memory depends on prompts
and not on rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.acceptance import policy_cut
from dspark_calib.metrics.rows.numbering import Numbering
from dspark_calib.trace.rounds import Rounds
from dspark_calib.trace.store import Trace

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

BATCH_ROWS = 65_536
CACHE_BYTES = 500_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBatch:
    """n rows of a trace.

    Attributes:
        logits: Raw confidence logits, float32 [n, γ].
        accepted: int16 [n].
        observed: int16 [n].
        cluster: Index into the clusters of the trace, int32 [n].
        cut: Whether a scheduler cut the round, bool [n]; see `policy_cut`.
    """

    logits: npt.NDArray[np.float32]
    accepted: npt.NDArray[np.int16]
    observed: npt.NDArray[np.int16]
    cluster: npt.NDArray[np.int32]
    cut: Booleans

    def __len__(self) -> int:
        return len(self.accepted)

    def take(self, rows: npt.NDArray[np.generic] | slice) -> "JudgedBatch":
        """Select rows by index, mask or slice."""
        return JudgedBatch(
            logits=self.logits[rows],
            accepted=self.accepted[rows],
            observed=self.observed[rows],
            cluster=self.cluster[rows],
            cut=self.cut[rows],
        )

    def then(self, *others: "JudgedBatch") -> "JudgedBatch":
        """Return these rows and those of the others, in order."""
        if not others:
            return self
        batches = (self, *others)
        return JudgedBatch(
            logits=np.concatenate([b.logits for b in batches]),
            accepted=np.concatenate([b.accepted for b in batches]),
            observed=np.concatenate([b.observed for b in batches]),
            cluster=np.concatenate([b.cluster for b in batches]),
            cut=np.concatenate([b.cut for b in batches]),
        )


class JudgedRows:
    """The rows of a trace, or of some of its files, read as often as needed.

    Args:
        trace: Where the rows come from.
        numbering: The finished numbering of the whole trace, set to the first of these rows.
        threads: Threads of every pass over the rows.
        kept: The rows, where they are in memory; None reads them on each pass.
        small: Whether the rows may be kept in memory once they were read.

    Attributes:
        gamma: γ.
        threads: Threads of every pass over the rows.
    """

    def __init__(
        self,
        trace: Trace,
        numbering: Numbering,
        threads: int,
        kept: list[JudgedBatch] | None = None,
        *,
        small: bool = False,
    ) -> None:
        self._trace, self._numbering, self._kept, self._small = trace, numbering, kept, small
        self.gamma, self.threads = trace.gamma, threads

    @property
    def kept(self) -> bool:
        """Whether the rows are in memory."""
        return self._kept is not None

    def at_hand(self) -> "JudgedRows":
        """Return the same rows, in memory where they may be kept."""
        if self.kept or not self._small:
            return self
        return self.kept_as(list(self.batches()))

    def kept_as(self, batches: list[JudgedBatch]) -> "JudgedRows":
        """Return rows that are in memory, all of these or some."""
        return JudgedRows(self._trace, self._numbering, self.threads, batches)

    def batches(self) -> Iterator[JudgedBatch]:
        """Yield the rows in order, at most 65,536 at a time."""
        if self._kept is not None:
            yield from self._kept
            return
        numbering = self._numbering.again()
        read = self._trace.batches(optional=(), batch_rows=BATCH_ROWS)
        yield from rebatched(judge(rounds, numbering) for rounds in read)


def judge(rounds: Rounds, numbering: Numbering) -> JudgedBatch:
    """Reduce rounds, which the numbering must see in their order."""
    return JudgedBatch(
        logits=rounds.confidence_logits,
        accepted=rounds.accepted,
        observed=rounds.observed,
        cluster=numbering.number(rounds),
        cut=policy_cut(rounds),
    )


def compact(cluster: npt.NDArray[np.integer[Any]]) -> tuple[Integers, Integers]:
    """Return the clusters that occur, increasing, shape [c], and the index of each row's among them, shape [n]."""
    present = np.flatnonzero(np.bincount(cluster))
    place = np.empty(int(present[-1]) + 1 if len(present) else 0, dtype=np.int64)
    place[present] = np.arange(len(present))
    return present, place[cluster]


def fits_in_memory(trace: Trace, shares: int = 1) -> bool:
    """Return whether a share of the rows of a trace is small enough to be kept."""
    return trace.num_rounds * (4 * trace.gamma + 9) <= CACHE_BYTES * shares


def rebatched(batches: Iterable[JudgedBatch], rows: int = BATCH_ROWS) -> Iterator[JudgedBatch]:
    """Yield the same rows in batches of `rows`, the last one fewer: many small ones cost more in calls than in sums."""
    waiting: list[JudgedBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        if count < rows:
            continue
        whole = waiting[0].then(*waiting[1:])
        full = count - count % rows
        for start in range(0, full, rows):
            yield whole.take(slice(start, start + rows))
        waiting, count = ([whole.take(slice(full, None))], count - full) if count > full else ([], 0)
    if waiting:
        yield waiting[0].then(*waiting[1:])


def first_of_each(cluster: npt.NDArray[np.generic], seen: Integers, limit: int) -> Booleans:
    """Return which rows are among the first `limit` of their cluster; negative clusters never are.

    Args:
        cluster: Cluster of each row, shape [n].
        seen: Rows already counted of each cluster, shape [C]; counted on in place.
        limit: Rows wanted of each.
    """
    order = np.argsort(cluster, kind="stable")
    ordered = cluster[order].astype(np.int64)
    starts = np.flatnonzero(np.diff(ordered, prepend=-2))
    rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.append(starts, len(ordered))))
    keep = np.zeros(len(cluster), dtype=bool)
    keep[order] = (ordered >= 0) & (rank + seen[np.maximum(ordered, 0)] < limit)
    seen += np.bincount(ordered[ordered >= 0], minlength=len(seen))
    return keep
