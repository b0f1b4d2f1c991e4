"""Prompts as clusters, and their folds.

Rounds of one prompt share its difficulty, so intervals resample prompts and splits never part one.
Imports without prompt ids fall back to contiguous blocks of rounds, and whoever shows an interval says so.
"""

import copy
import hashlib

import numpy as np
import numpy.typing as npt

from dspark_calib.trace.labels import NULL
from dspark_calib.trace.rounds import Rounds

BLOCK_ROUNDS = 100
MAX_CLUSTERS = 50_000

ClusterKey = tuple[str, str]


class PromptClusters:
    """Numbers the clusters of a stream of batches: (dataset, prompt id), or blocks of rounds where ids are missing.

    Memory grows with the number of prompts, never with rounds.

    Args:
        expected_prompts: Prompts of the whole trace (its provenance knows). Above 50,000 they are hashed
            to 50,000 clusters, which `hashed` says.

    Attributes:
        hashed: Whether prompts are hashed.
        has_blocks: Whether blocks of rounds stand in for prompts.
        keys: Clusters by number.
        unnamed: Rounds without a prompt id so far, by data set.
    """

    def __init__(self, expected_prompts: int = 0) -> None:
        self.hashed = expected_prompts > MAX_CLUSTERS
        self.has_blocks = False
        self.keys: list[ClusterKey] = []
        self._index: dict[ClusterKey, int] = {}
        self.unnamed: dict[str, int] = {}
        self._named: set[ClusterKey] = set()

    def again(self) -> "PromptClusters":
        """Return what gives the rows from here on the same numbers once more."""
        other = copy.copy(self)
        other.unnamed = dict(self.unnamed)
        return other

    @property
    def prompt_count(self) -> int:
        """Distinct prompts with an id."""
        return len(self._named)

    def assign(self, rounds: Rounds) -> npt.NDArray[np.int32]:
        """Return the cluster number of each row, int32 [n]."""
        codes = np.empty(len(rounds), dtype=np.int32)
        width = len(rounds.prompt_id.names) + 1
        pair = rounds.dataset.codes.astype(np.int64) * width + rounds.prompt_id.codes
        named = rounds.prompt_id.codes != NULL
        pairs, inverse = np.unique(pair[named], return_inverse=True)
        numbers = [self._number_named(rounds, int(p // width), int(p % width)) for p in pairs]
        codes[named] = np.array(numbers, dtype=np.int32)[inverse]
        if not named.all():
            self.has_blocks = True
            codes[~named] = self._number_blocks(rounds, ~named)
        return codes

    def _number_named(self, rounds: Rounds, dataset: int, prompt: int) -> int:
        key = (rounds.dataset.names[dataset], rounds.prompt_id.names[prompt])
        self._named.add(key)
        return self._number((key[0], f"#{stable_hash(*key) % MAX_CLUSTERS}") if self.hashed else key)

    def _number_blocks(self, rounds: Rounds, unnamed: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        datasets = rounds.dataset.codes[unnamed]
        numbers = np.empty(len(datasets), dtype=np.int32)
        for code in np.unique(datasets):
            name = rounds.dataset.names[code] if code != NULL else ""
            rows = np.flatnonzero(datasets == code)
            start = self.unnamed.get(name, 0)
            blocks = (start + np.arange(len(rows))) // BLOCK_ROUNDS
            first = int(blocks[0])
            ids = [self._number((name, f"block {b}")) for b in range(first, int(blocks[-1]) + 1)]
            numbers[rows] = np.array(ids, dtype=np.int32)[blocks - first]
            self.unnamed[name] = start + len(rows)
        return numbers

    def _number(self, key: ClusterKey) -> int:
        number = self._index.setdefault(key, len(self._index))
        if number == len(self.keys):
            self.keys.append(key)
        return number


def stable_hash(*parts: object) -> int:
    """Return a 64-bit hash of the parts that is the same on every machine and in every process."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def assign_folds(keys: list[ClusterKey], folds: int, seed: int) -> npt.NDArray[np.int16]:
    """Return the fold of each cluster, by a hash of (seed, dataset, prompt id).

    Args:
        keys: Clusters as `PromptClusters.keys` lists them.
        folds: Number of folds, at least 2.
        seed: Another seed gives another assignment.

    Returns:
        Fold numbers 0..folds-1, int16 [clusters].
    """
    return np.array([stable_hash(seed, *key) % folds for key in keys], dtype=np.int16)
