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
        chosen: Index of the temperature taken.
        best: Index of the bare minimum.
        interval: 95 % interval of the temperature taken by this rule, or None with fewer than two clusters.
    """

    chosen: int
    best: int
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
    best = best_index(temperatures, objective)
    if len(hashes) < 2:
        return Choice(chosen=best, best=best, interval=None)
    replicates = candidates.replicates(hashes, SELECTION_DRAWS, seed)
    replicates = replicates[np.isfinite(replicates).all(axis=1)]
    slack = np.zeros(len(temperatures))
    if select == "parsimonious":
        slack = np.std(replicates - replicates[:, [best]], axis=0)
    order = preference(temperatures)
    chosen = _first_within(objective[order], slack[order])
    drawn = [order[_first_within(row, slack[order])] for row in replicates[:, order]]
    return Choice(
        chosen=int(order[chosen]), best=best, interval=_interval(temperatures[drawn], temperatures[order[chosen]])
    )


def _first_within(objective: Floats, slack: Floats) -> int:
    """Return the first index, in order of preference, whose objective exceeds the minimum by no more than its slack."""
    return int(np.argmax(objective - objective.min() <= slack))


def _interval(drawn: Floats, chosen: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(min(low, chosen)), float(max(high, chosen))
