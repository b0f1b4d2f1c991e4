"""Rounds reduced to what statistics need, numbered by cluster and group, in bounded memory.

A judged batch is the logits, the labels and the cluster of each row. Up to a few hundred megabytes they
are kept; a longer trace is read again on each pass, so that memory depends on prompts and not on rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import InsufficientData
from dspark_calib.metrics.acceptance import AcceptanceSums, round_facts
from dspark_calib.metrics.bootstrap import Hashes, cluster_hashes
from dspark_calib.trace.clusters import BLOCK_ROUNDS, MAX_CLUSTERS, ClusterKey, PromptClusters
from dspark_calib.trace.rounds import Rounds
from dspark_calib.trace.store import Trace

if TYPE_CHECKING:
    from dspark_calib.trace.labels import Labels

Grouping = Literal["domain", "dataset"]

BATCH_ROWS = 65_536
CACHE_BYTES = 500_000_000
NO_NAME = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBatch:
    """n rows of a trace.

    Attributes:
        logits: Raw confidence logits, float32 [n, γ].
        accepted: int16 [n].
        observed: int16 [n].
        cluster: Index into the clusters of the trace, int32 [n].
    """

    logits: npt.NDArray[np.float32]
    accepted: npt.NDArray[np.int16]
    observed: npt.NDArray[np.int16]
    cluster: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.accepted)

    def take(self, rows: npt.NDArray[np.generic] | slice) -> "JudgedBatch":
        """Select rows by index, mask or slice."""
        return JudgedBatch(
            logits=self.logits[rows],
            accepted=self.accepted[rows],
            observed=self.observed[rows],
            cluster=self.cluster[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTable:
    """The clusters of a trace: one entry for each prompt (or stand-in) within each group.

    Attributes:
        keys: Cluster keys, (dataset, prompt id) or a stand-in, length C.
        hashes: Of the keys, uint64 [C].
        group: Group number of each entry, int32 [C].
        group_names: Names of the groups, in order of first appearance.
        kind: What stands behind every interval.
        prompts: Distinct prompt ids; 0 where the trace has none.
    """

    keys: tuple[ClusterKey, ...]
    hashes: Hashes
    group: npt.NDArray[np.int32]
    group_names: tuple[str, ...]
    kind: str
    prompts: int

    def __len__(self) -> int:
        return len(self.keys)


class JudgedTrace:
    """A trace ready for statistics: read once to number clusters and count, then as often as needed.

    Args:
        trace: Any trace.
        by: Column whose values form the groups, or None for one group.
        threads: Threads of every pass over the rows; sums are added in row order and do not depend on it.

    Attributes:
        clusters: The cluster table.
        acceptance: Counts that need no confidence.
        rounds: Rows.
        gamma: γ.
        threads: Threads of every pass.

    Raises:
        InsufficientData: If the trace holds no rounds.
    """

    def __init__(self, trace: Trace, by: Grouping | None = None, threads: int = 2) -> None:
        self._trace, self._by, self.threads = trace, by, threads
        self.gamma, self.rounds = trace.gamma, trace.num_rounds
        if self.rounds == 0:
            raise InsufficientData(f"{trace.name} holds no rounds; collect more prompts")
        self._cache: list[JudgedBatch] | None = [] if self.rounds * (4 * self.gamma + 8) <= CACHE_BYTES else None
        numbering = self._numbering()
        facts = []
        for rounds in trace.batches(optional=(), batch_rows=BATCH_ROWS):
            batch = numbering.judge(rounds)
            facts.append(round_facts(rounds, batch.cluster))
            if self._cache is not None:
                self._cache.append(batch)
        self.clusters = numbering.table()
        self.acceptance = AcceptanceSums.of(facts, len(self.clusters), self.gamma)

    def batches(self) -> Iterator[JudgedBatch]:
        """Yield the rows in order, at most 65,536 at a time."""
        if self._cache is not None:
            yield from self._cache
            return
        numbering = self._numbering()
        for rounds in self._trace.batches(optional=(), batch_rows=BATCH_ROWS):
            yield numbering.judge(rounds)

    @property
    def cached(self) -> bool:
        """Whether the rows are kept in memory."""
        return self._cache is not None

    def _numbering(self) -> "_Numbering":
        return _Numbering(self._trace.provenance.prompts, self._by)


class _Numbering:
    """Numbers (cluster, group) pairs in order of appearance, the same on every pass over the same rows."""

    def __init__(self, prompts: int, by: Grouping | None) -> None:
        self._prompts = PromptClusters(prompts)
        self._by = by
        self._groups: dict[str, int] = {}
        self._entries: dict[tuple[int, int], int] = {}

    def judge(self, rounds: Rounds) -> JudgedBatch:
        clusters = self._prompts.assign(rounds).astype(np.int64)
        groups = self._group_codes(rounds)
        stride = int(groups.max(initial=0)) + 1
        pairs, inverse = np.unique(clusters * stride + groups, return_inverse=True)
        entries = [self._entry(int(p) // stride, int(p) % stride) for p in pairs]
        return JudgedBatch(
            logits=rounds.confidence_logits,
            accepted=rounds.accepted,
            observed=rounds.observed,
            cluster=np.array(entries, dtype=np.int32)[inverse],
        )

    def _group_codes(self, rounds: Rounds) -> npt.NDArray[np.int64]:
        if self._by is None:
            self._groups.setdefault("all", 0)
            return np.zeros(len(rounds), dtype=np.int64)
        column: Labels = getattr(rounds, self._by)
        present = np.unique(column.codes)
        numbers = np.zeros(len(column.names) + 1, dtype=np.int64)
        for code in present.tolist():  # -1, null, lands in the last place
            name = column.names[code] if code >= 0 else NO_NAME
            numbers[code] = self._groups.setdefault(name, len(self._groups))
        return numbers[column.codes]

    def _entry(self, cluster: int, group: int) -> int:
        return self._entries.setdefault((cluster, group), len(self._entries))

    def table(self) -> ClusterTable:
        keys = tuple(self._prompts.keys[cluster] for cluster, _ in self._entries)
        return ClusterTable(
            keys=keys,
            hashes=cluster_hashes(keys),
            group=np.array([group for _, group in self._entries], dtype=np.int32),
            group_names=tuple(self._groups),
            kind=self._kind(),
            prompts=self._prompts.prompt_count,
        )

    def _kind(self) -> str:
        if self._prompts.has_blocks:
            return f"blocks of {BLOCK_ROUNDS} rounds"
        return f"prompts hashed to {MAX_CLUSTERS:,} clusters" if self._prompts.hashed else "prompts"
