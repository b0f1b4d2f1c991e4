"""Which of several good temperatures to take.

The objective is flat and noisy near its minimum: the bare minimum (`paper`) chases noise, and on near
calibrated heads makes held-out ECE worse. `parsimonious` takes the temperature nearest 1 that is within one
standard error, of the paired difference and clustered by prompt, of the best.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fit_record import Selection
from dspark_calib.calibration.grids import best_index, preference
from dspark_calib.calibration.objective import ClusterObjective
from dspark_calib.metrics.bootstrap import Hashes

Floats = npt.NDArray[np.float64]

SELECTION_DRAWS = 200
MIN_SPREAD = 1e-9  # objective differences below are rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A temperature chosen among candidates.

    Attributes:
        temperature: The temperature taken.
        interval: 95 % interval of the temperature taken by this rule, or None with fewer than two clusters.
    """

    temperature: float
    interval: tuple[float, float] | None


def choose(candidates: ClusterObjective, hashes: Hashes, select: Selection, seed: int) -> Choice:
    """Apply the selection rule to all candidates and to each replicate of them.

    Args:
        candidates: Objective at the candidates, by cluster.
        hashes: Of the clusters.
        select: `parsimonious` or `paper`.
        seed: Of the replicates.
    """
    temperatures, objective = candidates.temperatures, candidates.objective
    order = preference(temperatures)
    if len(hashes) < 2:
        return Choice(temperature=float(temperatures[best_index(temperatures, objective)]), interval=None)
    replicates = candidates.replicates(hashes, SELECTION_DRAWS, seed)
    replicates = replicates[np.isfinite(replicates).all(axis=1)]
    slack = np.zeros(len(temperatures))
    if select == "parsimonious":
        slack = np.std(replicates - replicates[:, [best_index(temperatures, objective)]], axis=0)
    chosen = float(temperatures[order[_first_within(objective[order], slack[order])]])
    drawn = temperatures[order[_first_within(replicates[:, order], slack[order])]]
    return Choice(temperature=chosen, interval=_interval(drawn, chosen))


def _first_within(objective: Floats, slack: Floats) -> npt.NDArray[np.intp]:
    """Return the first index, in order of preference, whose objective exceeds the minimum by no more than its slack."""
    within = objective - objective.min(axis=-1, keepdims=True) <= slack
    return np.asarray(np.argmax(within, axis=-1))


def _interval(drawn: Floats, chosen: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(min(low, chosen)), float(max(high, chosen))
