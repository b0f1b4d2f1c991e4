"""Fitting without each fold of prompts, so that "after" numbers are had on prompts a fit has not seen."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fit_record import TemperatureFit
from dspark_calib.calibration.rows import FitRows
from dspark_calib.calibration.tables import CrossFit
from dspark_calib.metrics.judged import JudgedTrace
from dspark_calib.metrics.view_sums import View
from dspark_calib.trace.clusters import assign_folds, stable_hash

Fitter = Callable[[FitRows], TemperatureFit]

REPEATS = 5
SUBSAMPLE_ROUNDS = 1_000_000


def fold_count(holdout: float) -> int:
    """Return the number of folds whose share is nearest the held-out share: 0.5 → 2, 0.2 → 5."""
    return max(round(1 / holdout), 2)


def cross_fit_temperatures(
    judged: JudgedTrace, view: View, fit: Fitter, *, holdout: float, seed: int, repeats: int = REPEATS
) -> CrossFit:
    """Fit without each fold, for several assignments of prompts to folds.

    Above 10⁶ rounds each prompt gives only its first rounds, as many as keep the whole below; the held-out ECE
    of each repeat is computed on the same rounds.

    Args:
        judged: The trace.
        view: View of the fit.
        fit: The procedure to judge.
        holdout: Share of prompts held out, 0 < share ≤ 0.5.
        seed: Of the first assignment; the others follow from it.
        repeats: Number of assignments.
    """
    folds = fold_count(holdout)
    limit = None if judged.rounds <= SUBSAMPLE_ROUNDS else max(SUBSAMPLE_ROUNDS // len(judged.clusters), 1)
    seeds = (seed, *(stable_hash("repeat", seed, r) % 2**31 for r in range(1, repeats)))
    temperatures = []
    for repeat_seed in seeds:
        assigned = assign_folds(list(judged.clusters.keys), folds, repeat_seed)
        temperatures.append(tuple(_without(judged, view, fit, assigned, f, limit) for f in range(folds)))
    rounds = judged.rounds if limit is None else min(judged.rounds, limit * len(judged.clusters))
    return CrossFit(
        seeds=tuple(int(s) for s in seeds),
        folds=folds,
        temperatures=tuple(temperatures),
        ece_after=(),
        rounds=rounds,
    )


def _without(
    judged: JudgedTrace, view: View, fit: Fitter, assigned: npt.NDArray[np.int16], fold: int, limit: int | None
) -> tuple[float, ...]:
    others = assigned != fold
    if not others.any():
        return (1.0,) * judged.gamma  # every prompt lies in this fold: nothing to fit on
    return fit(FitRows(judged, view, others, limit)).temperatures
