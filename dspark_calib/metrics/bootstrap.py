"""Bootstrap by prompt: weights on clusters, never copies of rows.

Each replicate gives every cluster a Poisson(1) weight that depends only on the seed, the cluster's
name and the replicate's number. Two evaluations with one seed therefore weigh a shared prompt alike:
differences of their replicates are paired, between raw and calibrated, week and week, checkpoint and checkpoint.
"""

from collections import deque
from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from dspark_calib.metrics.rows.passes import map_in_order
from dspark_calib.trace.clusters import stable_hash

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]

DEFAULT_DRAWS = 1000
MIN_PROMPTS = 30  # below, intervals are said to be rough
_BLOCK = 16  # draws weighed at once: bounds memory to 16 weights a cluster and thread
_POISSON_CDF = np.cumsum([np.exp(-1) / f for f in (1, 1, 2, 6, 24, 120, 720, 5040, 40320)])


def cluster_hashes(keys: Sequence[tuple[str, str]]) -> Hashes:
    """Return a 64-bit hash of each cluster key, shape [C]."""
    return np.array([stable_hash(*key) for key in keys], dtype=np.uint64)


def bootstrap_weights(hashes: Hashes, draws: range, seed: int) -> Floats:
    """Return Poisson(1) weights, shape [len(draws), C].

    Args:
        hashes: From `cluster_hashes`, shape [C].
        draws: Numbers of the replicates.
        seed: Any whole number ≥ 0.
    """
    salt = _mixed(np.arange(draws.start, draws.stop, dtype=np.uint64) + np.uint64(stable_hash("draw", seed) >> 20))
    bits = _mixed(hashes[None, :] ^ salt[:, None])
    uniform = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.searchsorted(_POISSON_CDF, uniform, side="right").astype(np.float64)


def weighted_sums(
    values: Sequence[npt.NDArray[np.generic]], hashes: Hashes, draws: int, seed: int, threads: int = 2
) -> list[Floats]:
    """Return Σ_c w_c · v_c of each replicate, for each array v; shape [draws, …].

    Args:
        values: Sums of each cluster, arrays of shape [C, …].
        hashes: Of the clusters, shape [C].
        draws: Replicates.
        seed: Of the replicates.
        threads: Threads; no number depends on them.
    """
    flat = [v.reshape(len(v), -1).astype(np.float64, copy=False) for v in values]
    out = [np.empty((draws, v.shape[1])) for v in flat]

    def weighed(block: range) -> None:
        weights = bootstrap_weights(hashes, block, seed)
        for v, drawn in zip(flat, out, strict=True):
            drawn[block.start : block.stop] = weights @ v

    blocks = [range(start, min(start + _BLOCK, draws)) for start in range(0, draws, _BLOCK)]
    # Threads of its own make a matrix product depend on their number, and on a busy machine wait for one another.
    with _blas().limit(limits=1, user_api="blas"):
        deque(map_in_order(weighed, blocks, threads), maxlen=0)
    return [drawn.reshape(draws, *v.shape[1:]) for v, drawn in zip(values, out, strict=True)]


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries: once is enough


def _mixed(x: Hashes) -> Hashes:
    """Scramble 64 bits (the finaliser of SplitMix64; Steele, Lea and Flood 2014)."""
    with np.errstate(over="ignore"):
        x = (x + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)), dtype=np.uint64)
