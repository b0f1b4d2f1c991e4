"""The objective of a fit at many temperatures of one position, kept apart by cluster.

ECE and Brier score are those of the cumulative product a_k = a_{k-1} σ(z_k/T) (or of c_k in the
conditional view). The arithmetic is that of `survival` and `metrics.bins`, in blocks that fit a cache:
σ from one exponential, clamp, ⌊p·B⌋. All sums are float64 and added in row order.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fitting.fit_record import Objective
from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.calibration.rows.row_blocks import PositionBlock
from dspark_calib.metrics.bins import CLAMP, clamp, weighted_counts
from dspark_calib.metrics.bootstrap import Hashes, weighted_sums
from dspark_calib.survival import sigmoid

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjective:
    """Sums of an objective at m temperatures.

    Attributes:
        temperatures: Shape [m].
        sums: For each temperature, by cluster and cell, shape [C, cells]. For ECE a cell is a bin and holds Σ(p - y);
            for the others there is one cell with the summed loss.
        rows: Rows of each cluster, shape [C].
    """

    temperatures: Floats
    sums: tuple[Floats, ...]
    rows: Floats

    @property
    def objective(self) -> Floats:
        """Objective over all clusters, shape [m]."""
        return np.asarray([np.abs(each.sum(axis=0)).sum() / self.rows.sum() for each in self.sums])

    def replicates(self, hashes: Hashes, draws: int, seed: int) -> Floats:
        """Return the objective under bootstrap weights, shape [draws, m]."""
        *drawn, total = weighted_sums([*self.sums, self.rows], hashes, draws, seed)
        over = np.stack([np.abs(each).sum(axis=1) for each in drawn], axis=1)
        return np.asarray(over / np.where(total > 0, total, np.nan)[:, None])


def evaluate_by_cluster(rows: FitRows, objective: Objective, temperatures: Floats, bins: int) -> ClusterObjective:
    """Evaluate every temperature at the position at hand, exactly, with the sums of each cluster.

    Args:
        rows: The rows; earlier positions are fixed.
        objective: `ece`, `brier` or `nll`.
        temperatures: Shape [m].
        bins: Of the ECE.
    """
    sums = rows.over_position(
        ClusterPass(clusters=rows.clusters, objective=objective, temperatures=temperatures, bins=bins)
    )
    # Each by itself, so that those no longer wanted can go.
    apart = tuple(np.ascontiguousarray(sums[:, i]) for i in range(len(temperatures)))
    return ClusterObjective(temperatures=temperatures, sums=apart, rows=rows.cluster_sizes)


def evaluate_totals(rows: FitRows, objective: Objective, temperatures: Floats, bins: int) -> Floats:
    """Evaluate every temperature at the position at hand over all rows, shape [m]; memory does not know clusters."""
    sums = rows.over_position(TotalPass(objective=objective, temperatures=temperatures, bins=bins))
    return np.asarray(np.abs(sums).sum(axis=1) / rows.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPass:
    """Sums of an objective by cluster, temperature and cell, float64 [c, m, cells].

    Attributes:
        clusters: c.
        objective: `ece`, `brier` or `nll`.
        temperatures: Shape [m].
        bins: Of the ECE.
    """

    clusters: int
    objective: Objective
    temperatures: Floats
    bins: int

    def zero(self) -> Floats:
        """Return sums of no rows."""
        return np.zeros((self.clusters, len(self.temperatures), _cells(self.objective, self.bins)))

    def part(self, block: PositionBlock) -> tuple[PositionBlock, Floats]:
        """Sum a block over its own clusters."""
        clusters = len(block.present)
        return block, _block_sums(block, block.local, clusters, self.objective, self.temperatures, self.bins)

    def add(self, total: Floats, part: tuple[PositionBlock, Floats]) -> None:
        """Add a block."""
        block, sums = part
        total[block.present] += sums

    def merge(self, total: Floats, other: Floats) -> None:
        """Add the sums of other rows."""
        total += other


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalPass:
    """The same over all clusters, float64 [m, cells].

    Attributes:
        objective: `ece`, `brier` or `nll`.
        temperatures: Shape [m].
        bins: Of the ECE.
    """

    objective: Objective
    temperatures: Floats
    bins: int

    def zero(self) -> Floats:
        """Return sums of no rows."""
        return np.zeros((len(self.temperatures), _cells(self.objective, self.bins)))

    def part(self, block: PositionBlock) -> Floats:
        """Sum a block."""
        whole = np.zeros(len(block), dtype=np.int64)
        return np.asarray(_block_sums(block, whole, 1, self.objective, self.temperatures, self.bins)[0])

    def add(self, total: Floats, part: Floats) -> None:
        """Add a block, or the sums of other rows."""
        total += part

    merge = add


def _cells(objective: Objective, bins: int) -> int:
    return bins if objective == "ece" else 1


def _block_sums(
    block: PositionBlock, cluster: Integers, clusters: int, objective: Objective, temperatures: Floats, bins: int
) -> Floats:
    """Return the sums of one block by cluster, temperature and cell."""
    if objective == "ece":
        return _excess(block, cluster, clusters, temperatures, bins)
    losses = [weighted_counts(cluster, _losses(block, objective, float(t)), clusters) for t in temperatures]
    return np.stack(losses, axis=1)[:, :, None]


def _excess(block: PositionBlock, cluster: Integers, clusters: int, temperatures: Floats, bins: int) -> Floats:
    """Return Σ(p - y) by cluster, temperature and bin, shape [c, m, B]; arrays are reused across temperatures."""
    from scipy.sparse import csc_array

    n, size = len(block), clusters * bins
    base = (cluster * bins).astype(np.int32)
    magnitude, one_above, ones, e = np.abs(block.logit), (block.logit >= 0).astype(np.float64), np.ones(n), np.empty(n)
    # A matrix with one entry a column, times ones: added in row order as by bincount, without the interpreter's lock.
    table = csc_array((np.empty(n), np.zeros(n, np.int32), np.arange(n + 1, dtype=np.int32)), shape=(size, n))
    p, cell = table.data, table.indices
    out = np.empty((clusters, len(temperatures), bins))
    for i, temperature in enumerate(temperatures.tolist()):
        _write_sigmoid(magnitude, one_above, temperature, e, p)
        p *= block.prior
        np.clip(p, CLAMP, 1.0 - CLAMP, out=p)
        np.multiply(p, bins, out=e)
        np.copyto(cell, e, casting="unsafe")  # to 32 bits: vectorised, where casting to 64 is not
        cell += base
        p -= block.label
        out[:, i] = (table @ ones).reshape(clusters, bins)
    return out


def _write_sigmoid(magnitude: Floats, one_above: Floats, temperature: float, e: Floats, p: Floats) -> None:
    """Write σ(z/T) to p, by the same operations as `survival.sigmoid`; e is scratch, `one_above` 1 where z ≥ 0."""
    np.divide(magnitude, -temperature, out=e)
    np.exp(e, out=e)
    np.maximum(e, one_above, out=p)
    e += 1.0
    p /= e


def _losses(block: PositionBlock, objective: Objective, temperature: float) -> Floats:
    """Return the loss of each row, shape [n]."""
    p = clamp(block.prior * sigmoid(block.logit / temperature))
    brier = objective == "brier"
    return np.asarray((p - block.label) ** 2) if brier else _negative_log_likelihood(block, temperature, p)


def _negative_log_likelihood(block: PositionBlock, temperature: float, p: Floats) -> Floats:
    """Return -log a_k where accepted and -log(1 - a_k) where not, from logits where p would saturate."""
    x = block.logit / temperature
    soft = np.log1p(np.exp(-np.abs(x)))
    accepted = np.maximum(-x, 0.0) + soft - np.log(np.maximum(block.prior, np.finfo(np.float64).tiny))
    certain = block.prior >= 1.0
    rejected = np.where(certain, np.maximum(x, 0.0) + soft, -np.log1p(-p))
    return np.asarray(np.where(block.label > 0, accepted, rejected), dtype=np.float64)
