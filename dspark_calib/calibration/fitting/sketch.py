"""A histogram of the rows of one position that bounds the ECE at any temperature without touching them again.

Cells are a grid over (z_k, a_{k-1}). At temperature T a row's prediction is p = a·σ(z/T), so within a column of
equal z the ECE bin changes at known values of a: the sums of each bin follow from running sums along a. Only rows
in cells that an edge crosses may lie on either side of it. The bound on the error of the ECE is

    (1/n) Σ_edges j·max(N₀↑p₊ + N₁↓(1 - p₋), N₁↑(1 - p₋) + N₀↓p₊)  +  (1/n) Σ_columns ΣA · ½ max|σ''| (h/T)²

with N↑, N↓ the rows of either label in the crossed cells counted below and above the edge, and p₋ ≤ p ≤ p₊ there:
moving any of them to the other side changes two bins by at most that much, so j = 2, or 0 where both bins are sure to
be off in the same direction: then one loses what the other gains. h is the half width of a column, whose σ is taken to
first order round its middle. `docs/decisions` has the argument in full.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.calibration.rows.row_blocks import PositionBlock
from dspark_calib.metrics.rows.passes import map_in_order
from dspark_calib.survival import sigmoid

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Number = TypeVar("Number", np.float64, np.int64)

COLUMNS, ROWS = 1024, 4096
COLUMNS_ALONE = 1 << 14  # where a_{k-1} = 1 for every row: position 1 and the conditional view
COARSER = 8  # the quick sketch merges 8 × 8 cells
_WARP = 2.0  # columns are even in σ(z/2): fine where σ(z/T) moves
_CURVATURE = 1 / (6 * np.sqrt(3))  # max |σ''|
_MARGIN = 1e-9
_HIGH_BITS = 32
_HIGH = 1 << _HIGH_BITS
ROUNDING = 3e-8  # covers the clamp, which moves p by up to 1e-8, and float64 rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Estimate of an objective and a bound on its error, at m temperatures; shapes [m]."""

    estimate: Floats
    error: Floats

    @property
    def low(self) -> Floats:
        """What the objective is at least."""
        return self.estimate - self.error

    @property
    def high(self) -> Floats:
        """What the objective is at most."""
        return self.estimate + self.error

    def replaced(self, index: Integers, others: "Bounds") -> "Bounds":
        """Return these bounds with others at some of the temperatures."""
        estimate, error = self.estimate.copy(), self.error.copy()
        estimate[index], error[index] = others.estimate, others.error
        return Bounds(estimate=estimate, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """Running sums along a_{k-1} for each column of z.

    Attributes:
        edges: Column edges in z, increasing, ±inf at the ends, shape [X+1].
        survival: Running Σ a, shape [X, Y+1].
        moment: Running Σ a·z, shape [X, Y+1] (0 in the end columns, which have no first-order term).
        labels: Running counts, of label 0 in the low half of the number, of label 1 in the high half, shape [X, Y+1].
    """

    edges: Floats
    survival: Floats
    moment: Floats
    labels: Integers

    @property
    def height(self) -> int:
        """Y: levels of a_{k-1}."""
        return int(self.survival.shape[1]) - 1

    @property
    def n(self) -> int:
        """Rows."""
        rejected, accepted = _parted(self.labels[:, -1])
        return int(rejected.sum() + accepted.sum())

    def coarser(self) -> "Sketch":
        """Return the sketch with 8 × 8 cells merged, or itself where it is too small to merge.

        At least two rows remain of several: a single one stands for a_{k-1} = 1.
        """
        columns, rows = self.survival.shape[0], self.survival.shape[1] - 1
        by_row = COARSER if rows > COARSER and rows % COARSER == 0 else 1
        if columns % COARSER:
            return self

        def merged(sums: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
            return np.asarray(sums[:, ::by_row].reshape(columns // COARSER, COARSER, -1).sum(axis=1))

        moment = merged(self.moment).astype(np.float64)
        moment[[0, -1]] = 0.0
        return Sketch(
            edges=self.edges[::COARSER],
            survival=merged(self.survival).astype(np.float64),
            moment=moment,
            labels=merged(self.labels).astype(np.int64),
        )

    def bounds(self, temperatures: Floats, bins: int, threads: int = 1) -> Bounds:
        """Bound the ECE at each temperature."""
        pairs = list(map_in_order(lambda t: self._bound(t, bins), temperatures.tolist(), threads))
        return Bounds(estimate=np.array([e for e, _ in pairs]), error=np.array([b for _, b in pairs]))

    def _bound(self, temperature: float, bins: int) -> tuple[float, float]:
        column = Columns.at(self.edges, temperature)
        below, above, middle = self.crossings(column, bins)
        sums = np.diff(self.sums_at(_bordered(middle, self.height)).excess(column), axis=1).sum(axis=0)
        crossed = self._crossed(column, below, middle, above)
        slack = self.slack(column)
        # What the clamp moves may turn the sign of a bin too.
        moved = (_jumps(sums, crossed, slack + ROUNDING * self.n) * crossed).sum()
        return float(np.abs(sums).sum() / self.n), float((moved + slack) / self.n) + ROUNDING

    def slack(self, column: "Columns") -> float:
        """Return by how much the first-order sums of all columns can be off, in rows."""
        return float((self.survival[:, -1] * column.error).sum())

    def crossings(self, column: "Columns", bins: int) -> tuple[Integers, Integers, Integers]:
        """Return, per column and bin edge, the first crossed cell, the one after the last, and the likeliest border."""
        rows = self.survival.shape[1] - 1
        edge = np.arange(1, bins) / bins
        if rows == 1:  # a_{k-1} = 1: a column lies on one side of an edge or is crossed as a whole
            first, last = column.high[:, None] < edge - ROUNDING, column.low[:, None] < edge + ROUNDING
            likely = first | (last & (column.sigma[:, None] < edge))
            return first.astype(np.int64), last.astype(np.int64), likely.astype(np.int64)
        # `rows` is a power of two, so a row's cell is exact; the margin covers the rounding of p and of the columns.
        below = np.floor(edge / np.maximum(column.high[:, None], 1e-300) * (rows * (1 - _MARGIN)))
        above = np.ceil(edge / np.maximum(column.low[:, None], 1e-300) * (rows * (1 + _MARGIN)))
        middle = np.rint(edge / np.maximum(column.sigma[:, None], 1e-300) * rows)
        first, last = (np.clip(x, 0, rows).astype(np.int64) for x in (below, above))
        return first, last, np.clip(np.clip(middle, 0, rows).astype(np.int64), first, last)

    def sums_at(self, borders: Integers) -> "ColumnSums":
        """Return the running sums at borders of the columns, shape of the borders [X, b]."""
        return ColumnSums(
            survival=_at(self.survival, borders),
            moment=_at(self.moment, borders),
            accepted=_parted(_at(self.labels, borders))[1],
        )

    def _crossed(self, column: "Columns", first: Integers, middle: Integers, last: Integers) -> Floats:
        """Return the most that rows in crossed cells can move over each edge, shape [B-1].

        Cells from `first` to `middle` were counted below the edge and can only move up, the others only down.
        """
        rows = self.survival.shape[1] - 1
        misses, hits = _parted(np.diff(_at(self.labels, np.stack([first, middle, last])), axis=0))  # [2, X, B-1]
        hit = 1 - first / rows * column.low[:, None]
        miss = np.minimum(last / rows * column.high[:, None], 1.0)
        gained = (misses[0] * miss + hits[1] * hit).sum(axis=0)
        lost = (hits[0] * hit + misses[1] * miss).sum(axis=0)
        return np.asarray(np.maximum(gained, lost))


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSums:
    """Sums of parts of the columns, shape [X, b]; fields as in `Sketch`, with label 1 alone."""

    survival: Floats
    moment: Floats
    accepted: Integers

    def __sub__(self, other: "ColumnSums") -> "ColumnSums":
        return ColumnSums(
            survival=self.survival - other.survival,
            moment=self.moment - other.moment,
            accepted=self.accepted - other.accepted,
        )

    def excess(self, column: "Columns") -> Floats:
        """Return Σ(p - y) to first order in z, shape [X, b]."""
        first_order = column.slope[:, None] * (self.moment - column.middle[:, None] * self.survival)
        return column.sigma[:, None] * self.survival + first_order - self.accepted


def _bordered(borders: Integers, height: int) -> Integers:
    """Return the borders between bins with the two ends of the columns, shape [X, B+1]."""
    ends = np.zeros_like(borders[:, :1])
    return np.concatenate([ends, borders, ends + height], axis=1)


def _parted(labels: Integers) -> tuple[Integers, Integers]:
    """Return the counts of label 0 and of label 1."""
    return labels & (_HIGH - 1), labels >> _HIGH_BITS


def _at(sums: npt.NDArray[Number], borders: Integers) -> npt.NDArray[Number]:
    """Return the running sums at borders of the columns, shape of the borders [..., X, b]."""
    columns, width = sums.shape
    # One flat index is faster than a pair of them.
    return np.asarray(sums.ravel()[borders + np.arange(0, columns * width, width)[:, None]])


def _jumps(sums: Floats, crossed: Floats, slack: float) -> Floats:
    """Return by how much Σ|bin sum| changes at most per unit moved over each edge: 0 or 2, shape [B-1].

    What leaves one bin enters the next. Where both sums are sure to have the same sign, whatever crosses their
    edges, the move changes one as much as the other and the total not at all.
    """
    reach = np.concatenate([[0.0], crossed]) + np.concatenate([crossed, [0.0]]) + slack
    sign = np.where(np.abs(sums) > reach, np.sign(sums), 0.0)
    return np.where((sign[1:] == sign[:-1]) & (sign[1:] != 0), 0.0, 2.0)


@dataclass(frozen=True, slots=True)
class Columns:
    """σ(z/T) over each column: at its middle, its range, its slope in z and the error of the first-order sum."""

    middle: Floats
    sigma: Floats
    slope: Floats
    low: Floats
    high: Floats
    error: Floats

    @classmethod
    def at(cls, edges: Floats, temperature: float) -> "Columns":
        """Look at the columns at a temperature."""
        low, high = sigmoid(edges[:-1] / temperature), sigmoid(edges[1:] / temperature)
        with np.errstate(invalid="ignore"):
            middle = (edges[:-1] + edges[1:]) / 2
            half = (edges[1:] - edges[:-1]) / 2
        inner = np.isfinite(middle)
        middle = np.where(inner, middle, 0.0)
        sigma = np.where(inner, sigmoid(middle / temperature), (low + high) / 2)
        slope = np.where(inner, sigma * (1 - sigma) / temperature, 0.0)
        # The tangent also errs by no more than the rise over the column: 0 is an edge, so σ is convex or concave in it,
        # its distance from the tangent is greatest at an end, and the slope in the middle is no steeper than the half
        # of the column nearer 0. Sums that treat σ as constant err by no more than half the rise.
        curved = np.where(inner, _CURVATURE / 2 * (np.where(inner, half, 0.0) / temperature) ** 2, np.inf)
        return cls(middle, sigma, slope, low, high, np.minimum(curved, high - low))


def build_sketch(rows: FitRows) -> Sketch:
    """Make the sketch of the position at hand in one pass."""
    alone = rows.view == "conditional" or rows.position == 0
    columns, height = (COLUMNS_ALONE, 1) if alone else (COLUMNS, ROWS)
    cells = rows.over_position(SketchPass(columns=columns, height=height))
    cells.moment[[0, -1]] = 0.0  # columns without an end have no first-order term
    return Sketch(
        edges=_column_edges(columns),
        survival=_running(cells.survival),
        moment=_running(cells.moment),
        labels=_running(cells.labels),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchCells:
    """Sums by column of z and level of a_{k-1}, shape [X, Y+1]; the first entry of a column stays 0.

    Attributes:
        survival: Σ a.
        moment: Σ a·z.
        labels: Rows with label 0 in the low half of the number, with label 1 in the high half.
    """

    survival: Floats
    moment: Floats
    labels: Integers


def locate(z: Floats, prior: Floats, columns: int, height: int) -> tuple[Integers, Integers]:
    """Return the column and the level of each row."""
    column, level = (sigmoid(z / _WARP) * columns).astype(np.int64), (prior * height).astype(np.int64)
    np.minimum(column, columns - 1, out=column)
    np.minimum(level, height - 1, out=level)
    return column, level


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchPass:
    """Fills the cells of a sketch.

    Attributes:
        columns: X, even in σ(z/2).
        height: Y, levels of a_{k-1}.
    """

    columns: int
    height: int

    def zero(self) -> SketchCells:
        """Return cells of no rows."""
        shape = (self.columns, self.height + 1)
        # Zeros from the system come in small pages, one fault each; memory that is filled comes in large ones.
        survival, moment, labels = np.full(shape, 0.0), np.full(shape, 0.0), np.full(shape, 0, dtype=np.int64)
        return SketchCells(survival=survival, moment=moment, labels=labels)

    def part(self, block: PositionBlock) -> tuple[Integers, Floats, Floats, Integers]:
        """Return the cell of each row, and what it adds there."""
        column, cell = locate(block.logit, block.prior, self.columns, self.height)
        column *= self.height + 1
        cell += column
        cell += 1
        labels = (block.label * (_HIGH - 1)).astype(np.int64)
        labels += 1
        return cell, block.prior, block.logit * block.prior, labels

    def add(self, total: SketchCells, part: tuple[Integers, Floats, Floats, Integers]) -> None:
        """Add a block."""
        cell, survival, moment, label = part
        np.add.at(total.survival.reshape(-1), cell, survival)
        np.add.at(total.moment.reshape(-1), cell, moment)
        np.add.at(total.labels.reshape(-1), cell, label)

    def merge(self, total: SketchCells, other: SketchCells) -> None:
        """Add the cells of other rows."""
        total.survival[:] += other.survival
        total.moment[:] += other.moment
        total.labels[:] += other.labels


def _column_edges(columns: int) -> Floats:
    """Return the edges in z, each moved outwards never by less than the rounding of the column index."""
    share = np.arange(1, columns) / columns
    return np.concatenate([[-np.inf], _WARP * np.log(share / (1 - share)), [np.inf]])


def _running(cells: npt.NDArray[Number]) -> npt.NDArray[Number]:
    np.cumsum(cells, axis=1, out=cells)
    return cells
