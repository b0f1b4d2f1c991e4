"""The search over temperatures of one position: every grid point, then the fine steps round the best."""

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fit_record import Objective, Selection
from dspark_calib.calibration.grids import best_index, default_grid, fine_grid
from dspark_calib.calibration.objective import ClusterObjective, evaluate_objective
from dspark_calib.calibration.rows import FitRows

Floats = npt.NDArray[np.float64]
Curve = tuple[tuple[float, float], ...]


def search(rows: FitRows, objective: Objective, select: Selection, bins: int) -> tuple[ClusterObjective, Curve]:
    """Return the candidates for selection and the curve of the objective over the grid."""
    coarse = evaluate_objective(rows, objective, default_grid(), bins)
    best = coarse.temperatures[best_index(coarse.temperatures, coarse.objective)]
    candidates = coarse.joined(evaluate_objective(rows, objective, fine_grid(float(best)), bins))
    return candidates, _curve(coarse)


def _curve(evaluated: ClusterObjective) -> Curve:
    return tuple(zip(evaluated.temperatures.tolist(), evaluated.objective.tolist(), strict=True))
