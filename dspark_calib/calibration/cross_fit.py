"""Fitting without each fold of prompts, so that "after" numbers are had on prompts a fit has not seen."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.rows.sample import SAMPLE_ROUNDS, Sample, rounds_of_each
from dspark_calib.calibration.tables import CrossFit
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.scored_rows import View
from dspark_calib.survival import sigmoid
from dspark_calib.trace.clusters import assign_folds, stable_hash

Booleans = npt.NDArray[np.bool_]
Fitter = Callable[[JudgedTrace, View, Booleans], tuple[float, ...]]
"""Fits the clusters marked, bool [C]; returns γ temperatures."""

REPEATS = 5
LARGE_ROUNDS = 1_000_000


def fold_count(holdout: float) -> int:
    """Return the number of folds whose share is nearest the held-out share: 0.5 → 2, 0.2 → 5."""
    return max(round(1 / holdout), 2)


def cross_fit_temperatures(
    judged: JudgedTrace,
    view: View,
    fit: Fitter,
    *,
    holdout: float,
    bins: int,
    seed: int,
    repeats: int = REPEATS,
    among: Booleans | None = None,
    told: Callable[[int], None] | None = None,
) -> CrossFit:
    """Fit without each fold, for several assignments of prompts to folds.

    Above 10⁶ rounds each prompt gives only its first rounds, as many as keep the whole at 200,000; the held-out
    ECE of each repeat is computed on such a sample too.

    Args:
        judged: The trace.
        view: View of the fit.
        fit: The procedure to judge.
        holdout: Share of prompts held out, 0 < share ≤ 0.5.
        bins: Of the ECE.
        seed: Of the first assignment; the others follow from it.
        repeats: Number of assignments.
        among: Clusters to fit on and judge, bool [C]; None means all.
        told: Called with the number of assignments done.
    """
    folds = fold_count(holdout)
    limit = None if judged.rounds <= LARGE_ROUNDS else rounds_of_each(judged, SAMPLE_ROUNDS)
    seeds = (seed, *(stable_hash("repeat", seed, r) % 2**31 for r in range(1, repeats)))
    members = np.ones(len(judged.clusters), dtype=bool) if among is None else among
    used = judged if limit is None else judged.first_rounds(limit)
    sample = Sample.of(used, view)
    sample = sample.take(members[sample.cluster])
    temperatures, held_out = [], []
    for repeat_seed in seeds:
        assigned = assign_folds(list(judged.clusters.keys), folds, repeat_seed)
        fitted = tuple(_without(used, view, fit, assigned, members, f) for f in range(folds))
        temperatures.append(fitted)
        held_out.append(_held_out_ece(sample, np.array(fitted)[assigned], bins))
        if told is not None:
            told(len(temperatures))
    return CrossFit(
        seeds=tuple(int(s) for s in seeds),
        folds=folds,
        temperatures=tuple(temperatures),
        ece_after=tuple(held_out),
        rounds=used.rounds,
    )


def _without(
    judged: JudgedTrace,
    view: View,
    fit: Fitter,
    assigned: npt.NDArray[np.int16],
    among: Booleans,
    fold: int,
) -> tuple[float, ...]:
    others = (assigned != fold) & among
    if not others.any():
        return (1.0,) * judged.gamma  # every prompt lies in this fold: nothing to fit on
    return fit(judged, view, others)


def _held_out_ece(sample: Sample, of_cluster: npt.NDArray[np.float64], bins: int) -> tuple[float | None, ...]:
    """Return the ECE per position when each cluster has its own temperatures, shape of `of_cluster` [C, γ]."""
    return sample.ece(sample.predictions(sigmoid(sample.logits / of_cluster[sample.cluster])), bins)
