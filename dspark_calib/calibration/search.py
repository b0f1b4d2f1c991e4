"""The search over temperatures of one position: every grid point, then the fine steps round the best.

Few rows are searched exhaustively. For many, a sketch bounds the ECE at every temperature, and only those
that can still be the minimum, or within one standard error of it, are evaluated; the result is that of the
exhaustive search.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fit_record import Objective, Selection
from dspark_calib.calibration.grids import best_index, default_grid, fine_grid, preference
from dspark_calib.calibration.objective import ClusterObjective, evaluate_by_cluster, evaluate_totals
from dspark_calib.calibration.rows import FitRows
from dspark_calib.calibration.sketch import Bounds, build_sketch

Floats = npt.NDArray[np.float64]
Curve = tuple[tuple[float, float], ...]

EXHAUSTIVE_ROWS = 1_500_000  # below, a sketch costs more than it saves
SMALL_CLUSTERS = 200  # up to here the sums of every temperature fit easily, and all of them serve the interval
INTERVAL_TEMPERATURES = 17
_AT_ONCE = 6  # temperatures evaluated in one pass before looking again at what can still win


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search found.

    Attributes:
        best: The temperature of the bare minimum, ties by preference.
        candidates: All temperatures that selection and interval look at, by cluster, the best among them.
        curve: Pairs (T, objective) over the grid, in sample.
    """

    best: float
    candidates: ClusterObjective
    curve: Curve


def search(
    rows: FitRows,
    objective: Objective,
    select: Selection,
    bins: int,
    *,
    target: float = 1.0,
    exhaustive: bool | None = None,
) -> Searched:
    """Search the position at hand.

    Args:
        rows: The rows; earlier positions are fixed.
        objective: What to minimise; only ECE has a sketch.
        select: Rule of the selection, which decides how far from the minimum candidates matter.
        bins: Of the ECE.
        target: The temperature that `parsimonious` stays nearest to.
        exhaustive: Whether to evaluate every temperature; None decides by the number of rows.
    """
    if exhaustive is None:
        exhaustive = rows.count < EXHAUSTIVE_ROWS
    look = _every_temperature if exhaustive or objective != "ece" else _those_that_can_win
    known, curve = look(rows, objective, select, bins, target)
    candidates = _candidates(known, _slack_bound(rows, select), rows.clusters, target)
    return Searched(best=known.best, candidates=evaluate_by_cluster(rows, objective, candidates, bins), curve=curve)


@dataclass(frozen=True, slots=True)
class _Known:
    """Objective values known exactly, by temperature."""

    temperatures: Floats
    values: Floats

    @property
    def best(self) -> float:
        return float(self.temperatures[best_index(self.temperatures, self.values)])

    @property
    def least(self) -> float:
        return float(self.values.min(initial=np.inf))

    def with_more(self, rows: FitRows, objective: Objective, temperatures: Floats, bins: int) -> "_Known":
        new = np.setdiff1d(temperatures, self.temperatures)
        if len(new) == 0:
            return self
        values = evaluate_totals(rows, objective, new, bins)
        return _Known(np.concatenate([self.temperatures, new]), np.concatenate([self.values, values]))


def _every_temperature(
    rows: FitRows, objective: Objective, _select: Selection, bins: int, _target: float
) -> tuple[_Known, Curve]:
    coarse = _Known(np.empty(0), np.empty(0)).with_more(rows, objective, default_grid(), bins)
    curve = tuple(zip(coarse.temperatures.tolist(), coarse.values.tolist(), strict=True))
    return coarse.with_more(rows, objective, fine_grid(coarse.best), bins), curve


def _those_that_can_win(
    rows: FitRows, objective: Objective, select: Selection, bins: int, target: float
) -> tuple[_Known, Curve]:
    """Evaluate the temperatures whose bounds let them be the minimum or lie within the slack of it."""
    sketch, grid, slack = build_sketch(rows), default_grid(), _slack_bound(rows, select)
    quick = sketch.coarser().bounds(grid, bins)
    curve = tuple(zip(grid.tolist(), quick.estimate.tolist(), strict=True))
    coarse = grid[quick.low <= quick.high.min() + slack]
    coarse_bounds = sketch.bounds(coarse, bins)
    known = _minimum(rows, objective, coarse, coarse_bounds, _Known(np.empty(0), np.empty(0)), bins)
    fine = fine_grid(known.best)
    fine_bounds = sketch.bounds(fine, bins)
    known = _minimum(rows, objective, fine, fine_bounds, known, bins)
    if select == "parsimonious":
        reach = [t[b.low <= known.least + slack] for t, b in ((coarse, coarse_bounds), (fine, fine_bounds))]
        known = known.with_more(rows, objective, _preferred(np.concatenate(reach), known.best, target), bins)
    return known, curve


def _minimum(
    rows: FitRows, objective: Objective, temperatures: Floats, bounds: Bounds, known: _Known, bins: int
) -> _Known:
    """Evaluate temperatures, the likeliest first, until no other can be the minimum."""
    order = np.argsort(bounds.estimate, kind="stable")
    while True:
        left = [i for i in order if bounds.low[i] <= known.least and temperatures[i] not in known.temperatures]
        if not left:
            return known
        known = known.with_more(rows, objective, temperatures[left[:_AT_ONCE]], bins)


def _slack_bound(rows: FitRows, select: Selection) -> float:
    """Return what the standard error of a paired difference of two ECEs cannot exceed.

    Raising the weight of cluster c by one changes either ECE by at most n_c/n; by the Efron-Stein inequality
    the standard deviation over Poisson weights is then at most 2 √(Σ n_c²) / n.
    """
    if select == "paper":
        return 0.0
    sizes = rows.cluster_sizes
    return float(2 * np.sqrt((sizes**2).sum()) / sizes.sum())


def _preferred(temperatures: Floats, best: float, target: float) -> Floats:
    """Return the temperatures nearer the target than the best, and the best."""
    ranked = np.unique(np.append(temperatures, best))
    ranked = ranked[preference(ranked, target)]
    return ranked[: int(np.flatnonzero(ranked == best)[0]) + 1]


def _candidates(known: _Known, slack: float, clusters: int, target: float) -> Floats:
    """Return what selection must see, what the interval needs on the other side, and T = 1."""
    wanted = np.array([known.best])
    wanted = np.append(wanted, _preferred(known.temperatures[known.values <= known.least + slack], known.best, target))
    room = len(known.temperatures) if clusters <= SMALL_CLUSTERS else INTERVAL_TEMPERATURES
    wanted = np.append(wanted, known.temperatures[np.argsort(known.values, kind="stable")[:room]])
    return np.unique(np.append(wanted, 1.0))
