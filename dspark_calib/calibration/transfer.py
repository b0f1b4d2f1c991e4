"""Temperatures fitted on each group alone, and how they do on the others."""

from collections.abc import Mapping

from dspark_calib.calibration.cross_fit import Fitter, cross_fit_temperatures
from dspark_calib.calibration.evaluate import cluster_temperatures
from dspark_calib.calibration.rows.sample import Sample, mean_defined
from dspark_calib.calibration.tables import Transfer
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.scored_rows import View
from dspark_calib.survival import sigmoid


def fit_groups(judged: JudgedTrace, view: View, fit: Fitter) -> Mapping[str, tuple[float, ...]]:
    """Fit each group alone, on all its prompts.

    Args:
        judged: The trace, read with its groups.
        view: View of the fit.
        fit: The procedure.
    """
    table = judged.clusters
    return {name: fit(judged, view, table.group == g) for g, name in enumerate(table.group_names)}


def compute_transfer(
    judged: JudgedTrace,
    view: View,
    fit: Fitter,
    by_group: Mapping[str, tuple[float, ...]],
    *,
    holdout: float,
    bins: int,
    seed: int,
) -> Transfer:
    """Return the mean ECE of every group under every group's temperatures; held out by prompt on the diagonal."""
    sample, table = Sample.of(judged, view), judged.clusters
    names = table.group_names
    rows = [sample.take(table.group[sample.cluster] == g) for g in range(len(names))]
    matrix = []
    for i, name in enumerate(names):
        line = [mean_defined(part.ece(part.predictions_at(by_group[name]), bins)) for part in rows]
        if holdout > 0:
            line[i] = _within(judged, view, fit, i, rows[i], holdout=holdout, bins=bins, seed=seed)
        matrix.append(tuple(line))
    return Transfer(groups=names, mean_ece=tuple(matrix))


def _within(
    judged: JudgedTrace, view: View, fit: Fitter, group: int, part: Sample, *, holdout: float, bins: int, seed: int
) -> float | None:
    crossed = cross_fit_temperatures(
        judged, view, fit, holdout=holdout, bins=bins, seed=seed, repeats=1, among=judged.clusters.group == group
    )
    temperatures = cluster_temperatures(judged, crossed, repeat=0)[part.cluster]
    return mean_defined(part.ece(part.predictions(sigmoid(part.logits / temperatures)), bins))
