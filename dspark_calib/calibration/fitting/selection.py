"""Which of several good temperatures to take.

The objective is flat and noisy near its minimum: the bare minimum (`paper`) chases noise, and on nearly
calibrated heads makes held-out ECE worse. `parsimonious` keeps T = 1 unless the data speak against it
(`identifiability`), and then takes, of the temperatures within one standard error of the best (of the paired
difference, clustered by prompt), the one nearest the temperature of greatest likelihood, which is far less noisy.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fitting.fit_record import Selection
from dspark_calib.calibration.fitting.grids import best_index, preference
from dspark_calib.calibration.fitting.objective import ClusterObjective
from dspark_calib.metrics.bootstrap import Hashes

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

SELECTION_DRAWS = 200
MIN_SPREAD = 1e-9  # objective differences below are rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A temperature chosen among candidates.

    Attributes:
        temperature: The temperature taken.
        interval: 95 % interval of the minimum, widened to hold the temperature taken; None with one cluster.
    """

    temperature: float
    interval: tuple[float, float] | None


def choose(
    candidates: ClusterObjective,
    hashes: Hashes,
    select: Selection,
    seed: int,
    target: float = 1.0,
    *,
    interval: bool = True,
) -> Choice:
    """Apply the selection rule to all candidates.

    Args:
        candidates: Objective at the candidates, by cluster.
        hashes: Of the clusters.
        select: `parsimonious` or `paper`.
        seed: Of the replicates.
        target: The temperature that `parsimonious` stays nearest to.
        interval: Whether the interval is wanted.
    """
    temperatures, objective = candidates.temperatures, candidates.objective
    best = best_index(temperatures, objective)
    if len(hashes) < 2 or (select == "paper" and not interval):
        return Choice(temperature=float(temperatures[best]), interval=None)
    replicates = _replicates(candidates, hashes, seed)
    chosen = float(temperatures[best])
    if select == "parsimonious":
        order = preference(temperatures, target)
        chosen = float(temperatures[order[np.argmax(_good(objective, replicates, best)[order])]])
    if not interval:
        return Choice(temperature=chosen, interval=None)
    nearest = preference(temperatures)
    drawn = temperatures[nearest[np.argmin(replicates[:, nearest], axis=1)]]
    return Choice(temperature=chosen, interval=_interval(drawn, chosen))


def is_within_one_error(candidates: ClusterObjective, hashes: Hashes, seed: int) -> Booleans:
    """Return which candidates lie within one standard error of the best among them, as `choose` sees it, shape [m]."""
    objective = candidates.objective
    best = best_index(candidates.temperatures, objective)
    if len(hashes) < 2:
        return np.asarray(np.arange(len(objective)) == best)
    return _good(objective, _replicates(candidates, hashes, seed), best)


def _replicates(candidates: ClusterObjective, hashes: Hashes, seed: int) -> Floats:
    replicates = candidates.replicates(hashes, SELECTION_DRAWS, seed)
    return np.asarray(replicates[np.isfinite(replicates).all(axis=1)])


def _good(objective: Floats, replicates: Floats, best: int) -> Booleans:
    slack = np.std(replicates - replicates[:, [best]], axis=0)
    return np.asarray(objective - objective.min() <= slack)


def _interval(drawn: Floats, chosen: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(min(low, chosen)), float(max(high, chosen))
