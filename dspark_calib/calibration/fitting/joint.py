"""Joint refinement: coordinate descent over all temperatures after the sequential pass.

A sequential fit freezes T_1 before it has seen position 2. Here each temperature in turn is moved on its
neighbourhood of the grid to lower the mean ECE over all positions, and only when the gain exceeds one standard
error of the paired difference, clustered by prompt.
"""

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.rows.sample import Sample
from dspark_calib.metrics.bins import bin_indices, clamp
from dspark_calib.metrics.bootstrap import Hashes, weighted_sums

Floats = npt.NDArray[np.float64]

SWEEPS = 3
_STEPS = np.array([-8, -4, -2, -1, 1, 2, 4, 8]) / 32
_DRAWS = 100


def refine_jointly(
    sample: Sample, hashes: Hashes, temperatures: tuple[float, ...], *, bins: int, seed: int, movable: tuple[bool, ...]
) -> tuple[float, ...]:
    """Return refined temperatures.

    Args:
        sample: Rounds to fit on.
        hashes: Of the clusters of the trace.
        temperatures: From the sequential pass.
        bins: Of the ECE.
        seed: Of the replicates.
        movable: Which positions may move; one that was kept at identity stays there.
    """
    best = np.array(temperatures)
    standing = _excess(sample, best, len(hashes), bins)
    for _ in range(SWEEPS):
        moved = False
        for k in np.flatnonzero(movable):
            for candidate in best[k] * np.exp2(_STEPS):
                trial = best.copy()
                trial[k] = candidate
                found = _excess(sample, trial, len(hashes), bins)
                if _is_gain(found, standing, hashes, seed):
                    best, standing, moved = trial, found, True
        if not moved:
            break
    return tuple(best.tolist())


def _excess(sample: Sample, temperatures: Floats, clusters: int, bins: int) -> Floats:
    """Return Σ(p - y) by cluster, position and bin, and in the last place the rows behind it, shape [C, γ, B+1]."""
    predicted = sample.predictions_at(temperatures)
    sums = np.zeros((clusters, sample.gamma, bins + 1))
    for k in range(sample.gamma):
        labelled = sample.labelled(k)
        p, c = clamp(predicted[labelled, k]), sample.cluster[labelled].astype(np.int64)
        residual = p - (sample.accepted[labelled] > k)
        cell = c * bins + bin_indices(p, bins)
        excess = np.bincount(cell, weights=residual, minlength=clusters * bins)
        sums[:, k, :-1] = excess.reshape(clusters, bins)
        sums[:, k, -1] = np.bincount(c, minlength=clusters)
    return sums


def _mean_ece(sums: Floats) -> Floats:
    """Return the mean ECE of weighted sums [R, γ, B+1] over the positions with rows, shape [R]."""
    rows = sums[..., -1]
    ece = np.abs(sums[..., :-1]).sum(axis=-1) / np.maximum(rows, 1e-12)
    return np.asarray(ece[:, rows.max(axis=0) > 0].mean(axis=1))


def _is_gain(new: Floats, old: Floats, hashes: Hashes, seed: int) -> bool:
    """Return whether the new sums are better by more than one standard error of the paired difference."""
    gain = float((_mean_ece(old.sum(axis=0)[None]) - _mean_ece(new.sum(axis=0)[None]))[0])
    if gain <= 0:
        return False
    after, before = (_mean_ece(sums) for sums in weighted_sums([new, old], hashes, _DRAWS, seed))
    return gain > float(np.std(before - after))
