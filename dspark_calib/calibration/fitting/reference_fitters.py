"""The fitters of SGLang and DeepSpec, for comparison and for people who must match their numbers.

Both take the first strict minimum over a grid, in-sample. SGLang (`benchmark/dspark_sts_fit.py`): 41 float32
log-spaced temperatures in [0.1, 10], 15 bins, every row at every position, labels past the observed range counted
as rejected. DeepSpec (pull request 63, `scripts/fit_confidence_calibration.py`): 256 log-spaced temperatures
in [0.05, 20] and 1, 20 bins, observed rows only.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fitting.fit_record import Grid, PositionFit, TemperatureFit
from dspark_calib.calibration.fitting.objective import evaluate_totals
from dspark_calib.calibration.rows.fit_rows import FitRows

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRule:
    """How one of those fitters searches.

    Attributes:
        temperatures: Grid, increasing.
        bins: Of the ECE.
        all_rows: Whether positions without a label count as rejected.
    """

    temperatures: Floats
    bins: int
    all_rows: bool


def sglang_rule() -> ReferenceRule:
    """Return SGLang's rule."""
    grid = np.logspace(-1.0, 1.0, 41).astype(np.float32).astype(np.float64)
    return ReferenceRule(temperatures=grid, bins=15, all_rows=True)


def deepspec_rule() -> ReferenceRule:
    """Return DeepSpec's rule."""
    grid = np.logspace(np.log10(0.05), np.log10(20.0), 256)
    return ReferenceRule(temperatures=np.unique(np.append(grid, 1.0)), bins=20, all_rows=False)


def reference_rule(grid: Grid) -> ReferenceRule:
    """Return the rule of `sglang` or `deepspec`."""
    return sglang_rule() if grid == "sglang" else deepspec_rule()


def fit_reference(rows: FitRows, grid: Grid) -> TemperatureFit:
    """Fit as SGLang or DeepSpec would.

    Args:
        rows: The rows, in the cumulative view, made with the rule's `all_rows`.
        grid: `sglang` or `deepspec`.
    """
    rule = reference_rule(grid)
    before = _raw_errors(rows, rule)
    rows.restart()
    positions = []
    for k in range(rows.gamma):
        fit = _first_minimum(rows, rule, before[k])
        rows.fix(fit.temperature)
        positions.append(fit)
    return TemperatureFit(positions=tuple(positions), objective="ece", grid=grid, select="paper", view=rows.view)


def _raw_errors(rows: FitRows, rule: ReferenceRule) -> list[float | None]:
    """Return the ECE of each position with every temperature at 1, as those fitters report it; None without rows."""
    rows.restart()
    errors = []
    for _ in range(rows.gamma):
        errors.append(float(evaluate_totals(rows, "ece", np.ones(1), rule.bins)[0]) if rows.count else None)
        rows.fix(1.0)
    return errors


def _first_minimum(rows: FitRows, rule: ReferenceRule, before: float | None) -> PositionFit:
    position, n = rows.position + 1, rows.count
    if n == 0:
        return _unfitted(position)
    values = evaluate_totals(rows, "ece", rule.temperatures, rule.bins)
    best = int(np.argmin(values))
    temperature = float(rule.temperatures[best])
    edge = best in (0, len(values) - 1)
    return PositionFit(
        position=position,
        temperature=temperature,
        best_temperature=temperature,
        interval=None,
        objective_before=before,
        objective_after=float(values[best]),
        flags=("at_grid_edge",) if edge else (),
        n=n,
        positives=rows.positives,
        curve=tuple(zip(rule.temperatures.tolist(), values.tolist(), strict=True)),
    )


def _unfitted(position: int) -> PositionFit:
    return PositionFit(
        position=position,
        temperature=1.0,
        best_temperature=1.0,
        interval=None,
        objective_before=None,
        objective_after=None,
        flags=("kept_at_identity", "no_rounds"),
        n=0,
        positives=0,
    )
