"""Numbers of the (prompt, group) pairs of a trace: the clusters of every interval, the same on every pass."""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bootstrap import Hashes, cluster_hashes
from dspark_calib.trace.clusters import BLOCK_ROUNDS, MAX_CLUSTERS, ClusterKey, PromptClusters
from dspark_calib.trace.rounds import Rounds

if TYPE_CHECKING:
    from dspark_calib.trace.labels import Labels

Grouping = Literal["domain", "dataset"]

NO_NAME = "(none)"


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


class Numbering:
    """Numbers (cluster, group) pairs in order of appearance.

    Args:
        prompts: Prompts of the whole trace.
        by: Column whose values form the groups, or None for one group.

    Attributes:
        prompts: The numbering of the prompts alone.
    """

    def __init__(self, prompts: int, by: Grouping | None) -> None:
        self.prompts = PromptClusters(prompts)
        self._by = by
        self._groups: dict[str, int] = {}
        self._entries: dict[tuple[int, int], int] = {}

    def again(self) -> "Numbering":
        """Return a numbering that gives the rows from here on the same numbers once more."""
        other = copy.copy(self)
        other.prompts = self.prompts.again()
        return other

    def number(self, rounds: Rounds) -> npt.NDArray[np.int32]:
        """Return the number of each row, int32 [n]."""
        clusters = self.prompts.assign(rounds).astype(np.int64)
        groups = self._group_codes(rounds)
        stride = int(groups.max(initial=0)) + 1
        pairs, inverse = np.unique(clusters * stride + groups, return_inverse=True)
        entries = [self._entry(int(p) // stride, int(p) % stride) for p in pairs]
        return np.array(entries, dtype=np.int32)[inverse]

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
        """Return what was numbered so far."""
        keys = tuple(self.prompts.keys[cluster] for cluster, _ in self._entries)
        return ClusterTable(
            keys=keys,
            hashes=cluster_hashes(keys),
            group=np.array([group for _, group in self._entries], dtype=np.int32),
            group_names=tuple(self._groups),
            kind=self._kind(),
            prompts=self.prompts.prompt_count,
        )

    def _kind(self) -> str:
        if self.prompts.has_blocks:
            return f"blocks of {BLOCK_ROUNDS} rounds"
        return f"prompts hashed to {MAX_CLUSTERS:,} clusters" if self.prompts.hashed else "prompts"
