"""The objective of a fit at many temperatures of one position, kept apart by cluster.

ECE and Brier score are those of the cumulative product a_k = a_{k-1} σ(z_k/T) (or of c_k in the
conditional view). The arithmetic is that of `survival` and `metrics.bins`, in blocks that fit a cache:
σ from one exponential, clamp, ⌊p·B⌋. All sums are float64 and added in row order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fit_record import Objective
from dspark_calib.calibration.rows import FitRows, PositionBlock
from dspark_calib.metrics.bins import CLAMP
from dspark_calib.metrics.bootstrap import Hashes, weight_blocks
from dspark_calib.metrics.passes import map_in_order

Floats = npt.NDArray[np.float64]

SUM_BYTES = 200_000_000  # of the sums of one pass; more temperatures than fit take several passes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjective:
    """Sums of an objective at m temperatures.

    Attributes:
        temperatures: Shape [m].
        sums: Per temperature, cluster and cell, shape [m, C, cells]. For ECE a cell is a bin and holds Σ(p - y);
            for the others there is one cell with the summed loss.
        rows: Rows of each cluster, shape [C].
    """

    temperatures: Floats
    sums: Floats
    rows: Floats

    @property
    def objective(self) -> Floats:
        """Objective over all clusters, shape [m]."""
        return np.asarray(np.abs(self.sums.sum(axis=1)).sum(axis=-1) / self.rows.sum())

    def replicates(self, hashes: Hashes, draws: int, seed: int) -> Floats:
        """Return the objective under bootstrap weights, shape [draws, m]."""
        m, clusters, cells = self.sums.shape
        flat = self.sums.transpose(1, 0, 2).reshape(clusters, m * cells)
        out = np.empty((draws, m))
        for block, w in weight_blocks(hashes, draws, seed):
            total = w @ self.rows
            weighted = np.abs((w @ flat).reshape(-1, m, cells)).sum(axis=-1)
            out[block] = np.divide(
                weighted, total[:, None], out=np.full_like(weighted, np.nan), where=total[:, None] > 0
            )
        return out

    def joined(self, other: "ClusterObjective") -> "ClusterObjective":
        """Return the temperatures of both, increasing, each once."""
        temperatures = np.concatenate([self.temperatures, other.temperatures])
        _, first = np.unique(temperatures, return_index=True)
        return replace(self, temperatures=temperatures[first], sums=np.concatenate([self.sums, other.sums])[first])


def evaluate_objective(rows: FitRows, objective: Objective, temperatures: Floats, bins: int) -> ClusterObjective:
    """Evaluate every temperature at the position at hand, exactly.

    Args:
        rows: The rows; earlier positions are fixed.
        objective: `ece`, `brier` or `nll`.
        temperatures: Shape [m].
        bins: Of the ECE.
    """
    cells = bins if objective == "ece" else 1
    sums = np.zeros((len(temperatures), rows.clusters, cells))
    counts = np.zeros(rows.clusters)

    def evaluated(block: PositionBlock) -> tuple[PositionBlock, Floats]:
        return block, _block_sums(block, objective, temperatures, bins)

    for block, part in map_in_order(evaluated, rows.blocks()):
        sums[:, block.present] += part
        counts[block.present] += np.bincount(block.local, minlength=len(block.present))
    return ClusterObjective(temperatures=temperatures, sums=sums, rows=counts)


def chunked(temperatures: Floats, clusters: int, cells: int) -> Iterable[Floats]:
    """Split temperatures so that the sums of one evaluation stay within bounded memory."""
    size = max(int(SUM_BYTES / (8 * max(clusters, 1) * cells)), 1)
    return (temperatures[start : start + size] for start in range(0, len(temperatures), size))


def _block_sums(block: PositionBlock, objective: Objective, temperatures: Floats, bins: int) -> Floats:
    if objective == "ece":
        return _excess(block, temperatures, bins)
    return np.stack([_losses(block, objective, float(t)) for t in temperatures])[:, :, None]


def _excess(block: PositionBlock, temperatures: Floats, bins: int) -> Floats:
    """Return Σ(p - y) by temperature, cluster and bin, shape [m, c, B]; arrays are reused across temperatures."""
    clusters = len(block.present)
    base = block.local * bins
    e, p, x = (np.empty(len(block)) for _ in range(3))
    cell = np.empty(len(block), dtype=np.int64)
    out = np.empty((len(temperatures), clusters, bins))
    for i, temperature in enumerate(temperatures.tolist()):
        _survival(block, temperature, e, p)
        np.multiply(p, bins, out=x)
        np.copyto(cell, x, casting="unsafe")
        cell += base
        np.subtract(p, block.label, out=x)
        out[i] = np.bincount(cell, weights=x, minlength=clusters * bins).reshape(clusters, bins)
    return out


def _survival(block: PositionBlock, temperature: float, e: Floats, p: Floats) -> None:
    """Write clamped a_{k-1} σ(z/T) to p, by the same operations as `survival.sigmoid`; e is scratch."""
    np.divide(block.magnitude, -temperature, out=e)
    np.exp(e, out=e)
    np.copyto(p, e)
    np.copyto(p, 1.0, where=block.positive)
    e += 1.0
    p /= e
    p *= block.prior
    np.clip(p, CLAMP, 1.0 - CLAMP, out=p)


def _losses(block: PositionBlock, objective: Objective, temperature: float) -> Floats:
    """Return the summed loss of each cluster, shape [c]."""
    e, p = np.empty(len(block)), np.empty(len(block))
    _survival(block, temperature, e, p)
    brier = objective == "brier"
    loss = (p - block.label) ** 2 if brier else _negative_log_likelihood(block, temperature, p)
    return np.bincount(block.local, weights=loss, minlength=len(block.present)).astype(np.float64)


def _negative_log_likelihood(block: PositionBlock, temperature: float, p: Floats) -> Floats:
    """Return -log a_k where accepted and -log(1 - a_k) where not, from logits where p would saturate."""
    x = np.where(block.positive, block.magnitude, -block.magnitude) / temperature
    soft = np.log1p(np.exp(-np.abs(x)))
    accepted = np.maximum(-x, 0.0) + soft - np.log(block.prior)
    certain = block.prior >= 1.0
    rejected = np.where(certain, np.maximum(x, 0.0) + soft, -np.log1p(-p))
    return np.where(block.label > 0, accepted, rejected)
