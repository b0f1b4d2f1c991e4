"""Joint refinement: coordinate descent over all temperatures after the sequential pass.

A sequential fit freezes T_1 before it has seen position 2. Here each temperature in turn is moved on its
neighbourhood of the grid to lower the mean ECE over all positions, and only when the gain exceeds one standard
error of the paired difference, clustered by prompt.
"""

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.sample import Sample
from dspark_calib.metrics.bins import bin_indices, clamp
from dspark_calib.metrics.bootstrap import Hashes, weight_blocks

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
    standing = _ClusterExcess.of(sample, best, len(hashes), bins)
    for _ in range(SWEEPS):
        moved = False
        for k in np.flatnonzero(movable):
            for candidate in best[k] * np.exp2(_STEPS):
                trial = best.copy()
                trial[k] = candidate
                found = _ClusterExcess.of(sample, trial, len(hashes), bins)
                if found.gain_over(standing, hashes, seed):
                    best, standing, moved = trial, found, True
        if not moved:
            break
    return tuple(best.tolist())


class _ClusterExcess:
    """Σ(p - y) by position, cluster and bin, and the rows behind it."""

    def __init__(self, excess: Floats, rows: Floats) -> None:
        self.excess, self.rows = excess, rows  # [γ, C, B], [γ, C]

    @classmethod
    def of(cls, sample: Sample, temperatures: Floats, clusters: int, bins: int) -> "_ClusterExcess":
        predicted = sample.predictions_at(temperatures)
        excess, rows = np.zeros((sample.gamma, clusters, bins)), np.zeros((sample.gamma, clusters))
        for k in range(sample.gamma):
            labelled = sample.labelled(k)
            p, c = clamp(predicted[labelled, k]), sample.cluster[labelled].astype(np.int64)
            residual = p - (sample.accepted[labelled] > k)
            cell = c * bins + bin_indices(p, bins)
            excess[k] = np.bincount(cell, weights=residual, minlength=clusters * bins).reshape(clusters, bins)
            rows[k] = np.bincount(c, minlength=clusters)
        return cls(excess, rows)

    def mean_ece(self, weights: Floats) -> Floats:
        """Return the mean ECE under weights [R, C], shape [R]; positions without rows do not count."""
        total = np.maximum(weights @ self.rows.T, 1e-12)  # [R, γ]
        ece = np.stack([np.abs(weights @ e).sum(axis=1) for e in self.excess], axis=1) / total
        seen = self.rows.sum(axis=1) > 0
        return np.asarray(ece[:, seen].mean(axis=1))

    def gain_over(self, other: "_ClusterExcess", hashes: Hashes, seed: int) -> bool:
        """Return whether this is better by more than one standard error of the paired difference."""
        whole = np.ones((1, len(hashes)))
        difference = float(self.mean_ece(whole)[0] - other.mean_ece(whole)[0])
        if difference >= 0:
            return False
        draws = [self.mean_ece(w) - other.mean_ece(w) for _, w in weight_blocks(hashes, _DRAWS, seed)]
        return difference < -float(np.std(np.concatenate(draws)))
