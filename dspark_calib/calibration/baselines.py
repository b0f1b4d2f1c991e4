"""What other ways of fitting reach on the same held-out prompts, beside sequential temperature scaling.

Temperatures: one for all positions, and one a position fitted on c_k alone. Diagnostic upper bounds, which no
engine applies: Platt scaling (a slope and a bias) and isotonic regression of c_k; what they gain over the
temperatures is what temperature alone cannot fix. A constant shows what ECE alone is worth.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fitting.grids import best_index, default_grid
from dspark_calib.calibration.rows.sample import Sample, mean_defined
from dspark_calib.calibration.tables import Baseline, CrossFit
from dspark_calib.metrics.bins import bin_indices, clamp, weighted_counts
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.passes import map_in_order
from dspark_calib.survival import sigmoid
from dspark_calib.trace.clusters import assign_folds

Floats = npt.NDArray[np.float64]
Predictor = Callable[[Sample], Floats]  # conditional confidences of other rounds, [n, γ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way of fitting: from rounds to a function that recalibrates others.

    Attributes:
        name: In the table.
        fit: Returns the predictor and, where it has them, its temperatures.
    """

    name: str
    fit: Callable[[Sample, int], tuple[Predictor, tuple[float, ...] | None]]


def compute_baselines(
    judged: JudgedTrace, sample: Sample, cross_fit: CrossFit | None, shipped: tuple[float, ...], bins: int
) -> tuple[Baseline, ...]:
    """Judge every way on the folds of the first cross-fit, or in-sample without one.

    Args:
        judged: The trace, for the names of its clusters.
        sample: Its rounds.
        cross_fit: Folds; None judges in-sample.
        shipped: Temperatures of the fit itself.
        bins: Of the ECE.
    """
    folds = _folds(judged, sample, cross_fit)
    held_out = [shipped] if cross_fit is None else list(cross_fit.temperatures[0])
    predicted = np.empty_like(sample.logits)
    for fold, temperatures in enumerate(held_out):
        rows = folds == fold
        predicted[rows] = sigmoid(sample.logits[rows] / np.array(temperatures))
    table = [
        _baseline("identity", (1.0,) * sample.gamma, sample, sigmoid(sample.logits), bins),
        _baseline("sts", shipped, sample, predicted, bins),
    ]
    table += [_judge(way, sample, folds, cross_fit is None, bins) for way in _WAYS]
    return tuple(table)


def _folds(judged: JudgedTrace, sample: Sample, cross_fit: CrossFit | None) -> npt.NDArray[np.int16]:
    if cross_fit is None:
        return np.zeros(len(sample.accepted), dtype=np.int16)
    return assign_folds(list(judged.clusters.keys), cross_fit.folds, cross_fit.seeds[0])[sample.cluster]


def _judge(way: Way, sample: Sample, folds: npt.NDArray[np.int16], in_sample: bool, bins: int) -> Baseline:
    whole, temperatures = way.fit(sample, bins)
    predicted = whole(sample) if in_sample else np.empty_like(sample.logits)
    for rows, others in () if in_sample else _parted(folds):
        predictor, _ = way.fit(sample.take(others), bins)
        predicted[rows] = predictor(sample.take(rows))
    return _baseline(way.name, temperatures, sample, predicted, bins)


def _parted(folds: npt.NDArray[np.int16]) -> Iterator[tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    for fold in np.unique(folds):
        yield folds == fold, folds != fold


def _baseline(
    name: str, temperatures: tuple[float, ...] | None, sample: Sample, confidences: Floats, bins: int
) -> Baseline:
    predicted = sample.predictions(confidences)
    return Baseline(
        name=name, temperatures=temperatures, ece=sample.ece(predicted, bins), brier=sample.brier(predicted)
    )


def _scaled(temperatures: Floats) -> tuple[Predictor, tuple[float, ...]]:
    return lambda rounds: sigmoid(rounds.logits / temperatures), tuple(temperatures.tolist())


def _fit_global(sample: Sample, bins: int) -> tuple[Predictor, tuple[float, ...]]:
    """One temperature for all positions: least mean ECE over every second grid point."""
    grid = default_grid()[::2]

    def mean_ece(temperature: float) -> float | None:
        return mean_defined(sample.ece(sample.predictions_at(np.full(sample.gamma, temperature)), bins))

    values = list(map_in_order(mean_ece, grid.tolist()))
    best = grid[best_index(grid, np.array([np.inf if v is None else v for v in values]))]
    return _scaled(np.full(sample.gamma, best))


def _fit_independent(sample: Sample, bins: int) -> tuple[Predictor, tuple[float, ...]]:
    """One temperature a position: least ECE of c_k among rounds whose draft k was judged."""
    return _scaled(np.array([_independent_temperature(sample, k, bins) for k in range(sample.gamma)]))


def _independent_temperature(sample: Sample, k: int, bins: int) -> float:
    z, y = _judged_rows(sample, k)
    if len(z) == 0:
        return 1.0
    grid = default_grid()

    def ece(temperature: float) -> float:
        p = clamp(sigmoid(z / temperature))
        return float(np.abs(weighted_counts(bin_indices(p, bins), p - y, bins)).sum())

    return float(grid[best_index(grid, np.array(list(map_in_order(ece, grid.tolist()))))])


def _judged_rows(sample: Sample, k: int) -> tuple[Floats, Floats]:
    rows = sample.judged(k)
    return sample.logits[rows, k], (sample.accepted[rows] > k).astype(np.float64)


def _fit_platt(sample: Sample, _: int) -> tuple[Predictor, None]:
    """Logistic regression of acceptance on z_k."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    lines = []
    for k in range(sample.gamma):
        z, y = _judged_rows(sample, k)
        if len(np.unique(y)) < 2:
            lines.append((1.0, 0.0))
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(C=1e6).fit(z[:, None], y)
        lines.append((float(model.coef_[0, 0]), float(model.intercept_[0])))
    slope, bias = np.array(lines).T
    return lambda rounds: sigmoid(rounds.logits * slope + bias), None


def _fit_isotonic(sample: Sample, _: int) -> tuple[Predictor, None]:
    """Isotonic regression of acceptance on z_k; beyond the fitted range the nearest value holds."""
    from sklearn.isotonic import IsotonicRegression

    curves = []
    for k in range(sample.gamma):
        z, y = _judged_rows(sample, k)
        curves.append(IsotonicRegression(out_of_bounds="clip").fit(z, y) if len(z) else None)

    def predict(rounds: Sample) -> Floats:
        columns = [
            sigmoid(rounds.logits[:, k]) if curve is None else curve.predict(rounds.logits[:, k])
            for k, curve in enumerate(curves)
        ]
        return np.asarray(np.stack(columns, axis=1), dtype=np.float64)

    return predict, None


def _fit_constant(sample: Sample, _: int) -> tuple[Predictor, None]:
    """The conditional acceptance of each position, whatever the logit."""
    rates = []
    for k in range(sample.gamma):
        _z, y = _judged_rows(sample, k)
        rates.append(float(y.mean()) if len(y) else 0.5)
    return lambda rounds: np.broadcast_to(np.array(rates), rounds.logits.shape).copy(), None


_WAYS = (
    Way(name="global", fit=_fit_global),
    Way(name="independent", fit=_fit_independent),
    Way(name="platt", fit=_fit_platt),
    Way(name="isotonic", fit=_fit_isotonic),
    Way(name="constant", fit=_fit_constant),
)
