"""The search over temperatures of one position: every grid point, then the fine steps round the best.

Few rows are searched exhaustively. For many, a sketch bounds the ECE at every temperature, and only those
that can still be the minimum, or within one standard error of it, are evaluated; the result is that of the
exhaustive search.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fitting.fit_record import Objective, Selection
from dspark_calib.calibration.fitting.grids import best_index, default_grid, fine_grid, preference
from dspark_calib.calibration.fitting.objective import ClusterObjective, evaluate_by_cluster, evaluate_totals
from dspark_calib.calibration.fitting.selection import SELECTION_DRAWS, is_within_one_error
from dspark_calib.calibration.fitting.sketch import Bounds, Sketch, build_sketch
from dspark_calib.calibration.fitting.zoom import Zoom
from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.metrics.bootstrap import weighted_sums

Floats = npt.NDArray[np.float64]
Curve = tuple[tuple[float, float], ...]

EXHAUSTIVE_ROWS = 1_500_000  # below, a sketch costs more than it saves
SMALL_CLUSTERS = 200  # up to here the sums of every temperature fit easily, and all of them serve the interval
# Fine steps and grid steps from the best that serve the interval otherwise: 33 temperatures, from close by to far away.
_NEAR, _FAR = (1, 2, 3, 5, 8, 12), (3, 4, 6, 8, 11, 16, 22, 30, 40, 56)
_ZOOM = 3.5 / 32  # octaves either side of the likeliest grid point: the fine steps of its neighbours too
_AT_ONCE = 4  # temperatures evaluated in one pass before looking again at what can still win


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
    seed: int = 0,
    details: bool = True,
    exhaustive: bool | None = None,
) -> Searched:
    """Search the position at hand.

    Args:
        rows: The rows; earlier positions are fixed.
        objective: What to minimise; only ECE has a sketch.
        select: Rule of the selection, which decides how far from the minimum candidates matter.
        bins: Of the ECE.
        target: The temperature that `parsimonious` stays nearest to.
        seed: Of the replicates that tell how far from the minimum is one standard error.
        details: Whether the curve and the candidates of an interval are wanted, or the temperature alone.
        exhaustive: Whether to evaluate every temperature; None decides by the number of rows.
    """
    if exhaustive is None:
        exhaustive = rows.count < EXHAUSTIVE_ROWS
    sketched = objective == "ece" and not exhaustive
    known = _Known(rows, objective, bins, keep=sketched or rows.clusters <= SMALL_CLUSTERS)
    reach, fine, curve = (_those_that_can_win if sketched else _every_temperature)(
        known, _slack_bound(rows, select, seed)
    )
    wanted = [np.array([1.0, known.best])]
    if details:
        few = rows.clusters <= SMALL_CLUSTERS and not sketched
        wanted.append(known.temperatures if few else _for_the_interval(known, fine))
    if select == "parsimonious":
        wanted.append(_down_to_the_first_good(known, _preferred(reach, known.best, target), seed))
    candidates = known.by_cluster(np.unique(np.concatenate(wanted)))
    return Searched(best=known.best, candidates=candidates, curve=curve)


class _Known:
    """What is known exactly of the position at hand: objectives by temperature, and sums by cluster where kept.

    Args:
        rows: The rows.
        objective: What to minimise.
        bins: Of the ECE.
        keep: Whether to keep the sums of each cluster from the first evaluation on, or to make them when asked.
    """

    def __init__(self, rows: FitRows, objective: Objective, bins: int, *, keep: bool) -> None:
        self.rows, self.objective, self.bins, self._keep = rows, objective, bins, keep
        self._values: dict[float, float] = {}
        self._sums: dict[float, Floats] = {}

    def __contains__(self, temperature: float) -> bool:
        return temperature in self._values

    @property
    def temperatures(self) -> Floats:
        """All temperatures evaluated, increasing."""
        return np.array(sorted(self._values))

    @property
    def values(self) -> Floats:
        """Their objectives."""
        return np.array([self._values[t] for t in sorted(self._values)])

    @property
    def best(self) -> float:
        """The temperature of the least objective, ties by preference."""
        return float(self.temperatures[best_index(self.temperatures, self.values)])

    @property
    def least(self) -> float:
        """The least objective."""
        return min(self._values.values(), default=float("inf"))

    def add(self, temperatures: Floats) -> None:
        """Evaluate those that are not known yet."""
        new = np.array([t for t in temperatures.tolist() if t not in self._values])
        if len(new) and self._keep:
            self.by_cluster(new)
        elif len(new):
            totals = evaluate_totals(self.rows, self.objective, new, self.bins)
            self._values.update(zip(new.tolist(), totals.tolist(), strict=True))

    def by_cluster(self, temperatures: Floats) -> ClusterObjective:
        """Return the sums of each cluster, evaluating where they are missing."""
        new = np.array([t for t in temperatures.tolist() if t not in self._sums])
        if len(new):
            found = evaluate_by_cluster(self.rows, self.objective, new, self.bins)
            for index, (temperature, value) in enumerate(zip(new.tolist(), found.objective.tolist(), strict=True)):
                self._values.setdefault(temperature, value)
                self._sums[temperature] = found.sums[index]
        sums = tuple(self._sums[t] for t in temperatures.tolist())
        return ClusterObjective(temperatures=temperatures, sums=sums, rows=self.rows.cluster_sizes)


def _every_temperature(known: _Known, slack: float) -> tuple[Floats, Floats, Curve]:
    """Evaluate every temperature; return those within the slack of the minimum, the fine grid and the curve."""
    known.add(default_grid())
    curve = tuple(zip(known.temperatures.tolist(), known.values.tolist(), strict=True))
    fine = fine_grid(known.best)
    known.add(fine)
    return known.temperatures[known.values <= known.least + slack], fine, curve


def _those_that_can_win(known: _Known, slack: float) -> tuple[Floats, Floats, Curve]:
    """Evaluate the temperatures that can be the minimum; return those that can lie within the slack of it too."""
    sketch, grid, threads = build_sketch(known.rows), default_grid(), known.rows.threads
    quick = sketch.coarser().bounds(grid, known.bins, threads)
    curve = tuple(zip(grid.tolist(), quick.estimate.tolist(), strict=True))
    middle = float(grid[np.argmin(quick.estimate)])
    zoom = Zoom.of(known.rows, sketch, middle * 2**-_ZOOM, middle * 2**_ZOOM, known.bins)
    ceiling = float(zoom.bounds(np.array([middle])).high[0])
    coarse = grid[quick.low <= ceiling]
    best = _find_minimum(known, coarse, _bounds(known, sketch, zoom, coarse, ceiling))
    fine = np.unique(np.append(fine_grid(best), best))
    bounds = _bounds(known, sketch, zoom, fine, ceiling)
    known.add(np.array([_find_minimum(known, fine, bounds)]))
    reach = [t[b.low <= known.least + slack] for t, b in ((grid, quick), (fine, bounds))]
    return np.concatenate(reach), fine_grid(best), curve


def _bounds(known: _Known, sketch: Sketch, zoom: Zoom, temperatures: Floats, ceiling: float) -> Bounds:
    """Bound the ECE: by the sketch, and more closely where it leaves a temperature of the zoom's range open."""
    bounds = sketch.bounds(temperatures, known.bins, known.rows.threads)
    left_open = np.flatnonzero((bounds.low <= ceiling) & zoom.covers(temperatures))
    if len(left_open) == 0:
        return bounds
    return bounds.replaced(left_open, zoom.bounds(temperatures[left_open]))


def _find_minimum(known: _Known, temperatures: Floats, bounds: Bounds) -> float:
    """Return the temperature of the least objective, evaluating no more than it takes to tell."""
    order, at_once = np.argsort(bounds.estimate, kind="stable"), 1
    while True:
        left = order[bounds.low[order] <= min(known.least, float(bounds.high.min()))]
        unknown = [i for i in left if temperatures[i] not in known]
        if len(left) == 1:
            return float(temperatures[left[0]])
        if not unknown:
            return known.best
        known.add(temperatures[unknown[:at_once]])
        at_once = _AT_ONCE  # what the likeliest did not rule out


def _slack_bound(rows: FitRows, select: Selection, seed: int) -> float:
    """Return what the standard error of a paired difference of two ECEs cannot exceed.

    With D the weighted rows, raising the weight of cluster c by one changes the difference by at most (2 + 1) n_c/D:
    2 through Σ|…|, and the difference itself, at most 1, through D. By the Efron-Stein inequality the standard
    deviation over Poisson weights is then at most 3 √(Σ n_c² E[1/D²]), with the mean over the replicates used.
    """
    if select == "paper" or rows.clusters < 2:
        return 0.0
    sizes = rows.cluster_sizes
    (drawn,) = weighted_sums([sizes], rows.hashes, SELECTION_DRAWS, seed)
    return float(3 * np.sqrt((sizes**2).sum() * (1 / drawn[drawn > 0] ** 2).mean()))


def _preferred(temperatures: Floats, best: float, target: float) -> Floats:
    """Return the temperatures nearer the target than the best, nearest first, and the best."""
    ranked = np.unique(np.append(temperatures, best))
    ranked = ranked[preference(ranked, target)]
    return ranked[: int(np.flatnonzero(ranked == best)[0]) + 1]


def _down_to_the_first_good(known: _Known, ranked: Floats, seed: int) -> Floats:
    """Return the temperatures down to the first one within one standard error of the best: no later one is taken."""
    for end in range(_AT_ONCE, len(ranked), _AT_ONCE):
        some = np.append(ranked[end - _AT_ONCE : end], known.best)
        if is_within_one_error(known.by_cluster(some), known.rows.hashes, seed)[:-1].any():
            return ranked[:end]
    return ranked


def _for_the_interval(known: _Known, fine: Floats) -> Floats:
    """Return the temperatures whose minimum under bootstrap weights gives the interval: dense near the best."""
    return np.concatenate([_round(fine, known.best, _NEAR), _round(default_grid(), known.best, _FAR)])


def _round(temperatures: Floats, best: float, steps: tuple[int, ...]) -> Floats:
    """Return the temperatures that many steps below and above the best."""
    nearest = int(np.argmin(np.abs(temperatures - best)))
    index = nearest + np.array([-s for s in steps] + list(steps))
    return np.asarray(temperatures[index[(index >= 0) & (index < len(temperatures))]])
