"""The measures of an evaluation in the shape of the report: nothing is computed here, numbers change places."""

import numpy as np

from dspark_calib.calibration import GroupScores
from dspark_calib.metrics import BinSums, PositionScores, ScoreChange, Scores
from dspark_calib.metrics.estimate import UNDEFINED, Estimate, normal_estimate
from dspark_calib.summary.measures import (
    CalibrationChange,
    ConditionalMeasures,
    Group,
    Measures,
    PositionChange,
    PositionMeasures,
    ReliabilityBin,
    Sweep,
)


def group_of(scores: GroupScores, sweep: Sweep | None) -> Group:
    """Return one group of the report."""
    return Group(
        name=scores.name,
        rounds=scores.rounds,
        prompts=scores.prompts,
        raw=measures_of(scores.raw),
        calibrated=None if scores.calibrated is None else measures_of(scores.calibrated),
        change=None if scores.change is None else _change(scores.change),
        acceptance=scores.acceptance,
        sweep=sweep,
    )


def measures_of(scores: Scores) -> Measures:
    """Return the measures of every position under one set of temperatures."""
    pairs = zip(scores.cumulative, scores.conditional, strict=True)
    return Measures(
        positions=tuple(_position(cumulative, conditional) for cumulative, conditional in pairs),
        mean_ece=scores.mean_ece,
        mean_ece_floor=scores.mean_ece_floor,
    )


def _position(cumulative: PositionScores, conditional: PositionScores) -> PositionMeasures:
    return PositionMeasures(
        position=cumulative.position,
        n=cumulative.n,
        positives=round(cumulative.positives),
        predicted_mean=cumulative.predicted_mean,
        observed_mean=cumulative.observed_mean,
        ece=cumulative.ece,
        ece_floor=cumulative.ece_floor,
        ece_at_floor=cumulative.ece_at_floor,
        ece_squared_debiased=cumulative.ece_squared_debiased,
        smooth_ece=cumulative.smooth_ece,
        bias=cumulative.bias,
        auroc=cumulative.auroc,
        auroc_conditional=conditional.auroc,
        brier=cumulative.brier,
        log_loss=cumulative.log_loss,
        corp=cumulative.corp,
        bins=reliability_bins(cumulative.bins),
        conditional=_conditional(conditional),
        missing=cumulative.missing,
    )


def _conditional(scores: PositionScores) -> ConditionalMeasures:
    return ConditionalMeasures(
        n=scores.n,
        positives=round(scores.positives),
        predicted_mean=scores.predicted_mean,
        observed_mean=scores.observed_mean,
        ece=scores.ece,
        ece_floor=scores.ece_floor,
        ece_at_floor=scores.ece_at_floor,
        ece_squared_debiased=scores.ece_squared_debiased,
        smooth_ece=scores.smooth_ece,
        bias=scores.bias,
        brier=scores.brier,
        log_loss=scores.log_loss,
        corp=scores.corp,
        missing=scores.missing,
    )


def reliability_bins(sums: BinSums) -> tuple[ReliabilityBin, ...]:
    """Return the bins of a reliability diagram, empty ones too."""
    errors = np.full(len(sums.n), np.nan) if sums.observed_se is None else sums.observed_se
    columns = zip(sums.edges[:-1], sums.edges[1:], sums.n, sums.predicted, sums.observed, errors, strict=True)
    return tuple(
        ReliabilityBin(
            low=float(low), high=float(high), n=int(n), predicted=predicted, observed=_observed(observed, float(se))
        )
        for low, high, n, predicted, observed, se in columns
    )


def _observed(value: float | None, se: float) -> Estimate:
    return UNDEFINED if value is None else normal_estimate(value, se, lowest=0.0, highest=1.0)


def _change(change: ScoreChange) -> CalibrationChange:
    rows = zip(change.ece, change.bias, change.brier, change.auroc, strict=True)
    positions = tuple(
        PositionChange(position=k, ece=ece, bias=bias, brier=brier, auroc=auroc)
        for k, (ece, bias, brier, auroc) in enumerate(rows, start=1)
    )
    return CalibrationChange(positions=positions, mean_ece=change.mean_ece)
