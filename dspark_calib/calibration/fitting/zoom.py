"""The rows near the bin edges of a range of temperatures, by themselves: near-exact values from few rows.

Within a small range of temperatures only rows in the cells that an edge crosses somewhere in it can change their bin.
These are binned one by one; all others lie in a known bin, and the sketch knows their sums to first order. What is left
of the error of the ECE is the second order of σ within a column: about 10⁻⁶.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fitting.objective import TotalPass
from dspark_calib.calibration.fitting.sketch import ROUNDING, Bounds, Columns, ColumnSums, Sketch, locate
from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.calibration.rows.row_blocks import BLOCK_ROWS, PositionBlock, join_blocks
from dspark_calib.metrics.rows.passes import run_pass

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Zoom:
    """What it takes to evaluate the temperatures of a range.

    Attributes:
        rows: The rows.
        sketch: Of all of them.
        far: Sums of the cells that no edge crosses in the range, by column and bin.
        crossed: All other cells, bool [X, Y].
        near: The rows in these, where rows are kept in memory; None picks them out on each pass.
        lowest: Smallest temperature of the range.
        highest: Largest.
        bins: Of the ECE.
    """

    rows: FitRows
    sketch: Sketch
    far: ColumnSums
    crossed: Booleans
    near: list[PositionBlock] | None
    lowest: float
    highest: float
    bins: int

    @classmethod
    def of(cls, rows: FitRows, sketch: Sketch, lowest: float, highest: float, bins: int) -> "Zoom":
        """Tell near rows from far ones.

        Args:
            rows: The rows, at the position the sketch was made of.
            sketch: Of these rows.
            lowest: Smallest temperature of the range.
            highest: Largest.
            bins: Of the ECE.
        """
        # In a column σ(z/T) rises or falls in T all along: what lies between the ends' crossings is all of them.
        ends = [sketch.crossings(Columns.at(sketch.edges, t), bins) for t in (lowest, highest)]
        first, last = np.minimum(ends[0][0], ends[1][0]), np.maximum(ends[0][1], ends[1][1])
        end = np.zeros_like(first[:, :1])
        start = np.concatenate([end, last], axis=1)
        stop = np.maximum(np.concatenate([first, end + sketch.height], axis=1), start)
        crossed = _crossed_cells(first, last, sketch.height)
        return cls(
            rows=rows,
            sketch=sketch,
            far=sketch.sums_at(stop) - sketch.sums_at(start),
            crossed=crossed,
            near=rows.over_position(NearPass(crossed)).blocks() if rows.kept else None,
            lowest=lowest,
            highest=highest,
            bins=bins,
        )

    def covers(self, temperatures: Floats) -> Booleans:
        """Return which temperatures lie in the range."""
        return np.asarray((temperatures >= self.lowest) & (temperatures <= self.highest))

    def bounds(self, temperatures: Floats) -> Bounds:
        """Bound the ECE at temperatures of the range."""
        near = self._near_sums(TotalPass(objective="ece", temperatures=temperatures, bins=self.bins))
        columns = [Columns.at(self.sketch.edges, t) for t in temperatures.tolist()]
        far = np.array([self.far.excess(column).sum(axis=0) for column in columns])
        slack = np.array([self.sketch.slack(column) for column in columns])
        n = self.sketch.n
        return Bounds(estimate=np.abs(near + far).sum(axis=1) / n, error=slack / n + ROUNDING)

    def _near_sums(self, totals: TotalPass) -> Floats:
        """Return Σ(p - y) of the near rows by temperature and bin, shape [m, B]."""
        if self.near is None:
            return self.rows.over_position(NearTotalPass(self.crossed, totals))
        return run_pass(totals, self.near, self.rows.threads)


def _crossed_cells(first: Integers, last: Integers, height: int) -> Booleans:
    """Return which cells lie between a first and a last of their column, shape [X, Y]."""
    columns = len(first)
    steps = np.full((columns, height + 1), 0, dtype=np.int16)
    place = np.arange(columns)[:, None]
    np.add.at(steps, (place, first), 1)
    np.add.at(steps, (place, last), -1)
    np.cumsum(steps, axis=1, dtype=np.int16, out=steps)
    return np.asarray(steps[:, :-1] > 0)


@dataclass(slots=True)
class Near:
    """Rows as they are gathered: full blocks, and small ones that wait to fill one."""

    full: list[PositionBlock] = field(default_factory=list)
    waiting: list[PositionBlock] = field(default_factory=list)

    def add(self, block: PositionBlock) -> None:
        """Add rows."""
        self.waiting.append(block)
        if sum(map(len, self.waiting)) >= BLOCK_ROWS:
            self.full.append(join_blocks(self.waiting))
            self.waiting = []

    def blocks(self) -> list[PositionBlock]:
        """Return all rows."""
        return [*self.full, join_blocks(self.waiting)] if self.waiting else self.full


@dataclass(frozen=True, slots=True)
class NearPass:
    """Gathers the rows in marked cells.

    Attributes:
        cells: Which, bool [X, Y].
    """

    cells: Booleans

    def zero(self) -> Near:
        """Return no rows."""
        return Near()

    def part(self, block: PositionBlock) -> PositionBlock:
        """Return the rows of a block that lie in marked cells."""
        return _near(block, self.cells)

    def add(self, total: Near, part: PositionBlock) -> None:
        """Add a block."""
        total.add(part)

    def merge(self, total: Near, other: Near) -> None:
        """Add the rows of a later part of the trace."""
        for block in other.blocks():
            total.add(block)


@dataclass(frozen=True, slots=True)
class NearTotalPass:
    """Sums the rows in marked cells, without keeping them.

    Attributes:
        cells: Which, bool [X, Y].
        totals: What to sum.
    """

    cells: Booleans
    totals: TotalPass

    def zero(self) -> Floats:
        """Return sums of no rows."""
        return self.totals.zero()

    def part(self, block: PositionBlock) -> Floats:
        """Sum a block."""
        return self.totals.part(_near(block, self.cells))

    def add(self, total: Floats, part: Floats) -> None:
        """Add a block, or the sums of other rows."""
        total += part

    merge = add


def _near(block: PositionBlock, cells: Booleans) -> PositionBlock:
    return block.take(cells[locate(block.logit, block.prior, *cells.shape)])
