"""`fit-sts` as one call: check the trace, fit on all prompts, judge out of fold, decide, and record it all."""

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from dspark_calib.calibration.cross_fit import cross_fit_temperatures
from dspark_calib.calibration.evaluate import Evaluation, evaluate
from dspark_calib.calibration.file import Calibration
from dspark_calib.calibration.fit_record import Grid, Objective, Selection
from dspark_calib.calibration.rows import FitRows
from dspark_calib.calibration.sts import fit_sts
from dspark_calib.calibration.tables import HeldOut
from dspark_calib.metrics.bins import DEFAULT_BINS
from dspark_calib.metrics.judged import Grouping, JudgedTrace
from dspark_calib.metrics.passes import Progress
from dspark_calib.trace.store import Trace

if TYPE_CHECKING:
    from dspark_calib.metrics.view_sums import View


def fit_calibration(
    trace: Trace,
    *,
    objective: Objective = "ece",
    grid: Grid = "default",
    select: Selection = "parsimonious",
    joint: bool = False,
    bins: int = DEFAULT_BINS,
    holdout: float = 0.5,
    by: Grouping | None = None,
    seed: int = 0,
    accept: Collection[str] = (),
    workers: str = "1",
    progress: Progress | None = None,
) -> Calibration:
    """Fit temperatures on all prompts of a trace and judge the procedure on prompts it has not seen.

    Args:
        trace: The trace.
        objective: What to minimise.
        grid: `default`, or `sglang` or `deepspec` to reproduce those fitters.
        select: Rule among good temperatures.
        joint: Whether a joint refinement follows the sequential pass.
        bins: Of the ECE.
        holdout: Share of prompts held out for the "after" numbers; 0 makes them in-sample.
        by: Also fit each group alone, with the transfer matrix.
        seed: Of folds and replicates.
        accept: Names of findings to accept, or `all`.
        workers: Threads, or `ray`.
        progress: Called with the name of the step and the rows done.

    Raises:
        FindingsNotAccepted: If a check on the trace found something that stops a fit.
        InsufficientData: If the trace holds no rounds.
    """
    judged = JudgedTrace(trace)
    view: View = "conditional" if judged.acceptance.censored else "cumulative"
    procedure = partial(fit_sts, objective=objective, select=select, bins=bins, seed=seed)
    fit = procedure(FitRows(judged, view))
    cross_fit = None
    if holdout > 0:
        cross_fit = cross_fit_temperatures(judged, view, procedure, holdout=holdout, seed=seed)
    source = trace.provenance
    calibration = Calibration(
        temperatures=fit.temperatures,
        dataset="+".join(sorted({key[0] for key in judged.clusters.keys})),
        num_samples=judged.rounds,
        target=source.target,
        drafter=source.drafter,
        confidence_source=source.confidence_source,
        label_law=source.label_law,
        sampling_temperature=source.temperature,
        trace_hash=trace.content_hash,
        prompts=judged.clusters.prompts,
        bins=bins,
        seed=seed,
        fit=fit,
        cross_fit=cross_fit,
        accepted=tuple(sorted(accept)),
    )
    return _judged(calibration, evaluate(trace, calibration, bins=bins, seed=seed, progress=progress))


def _judged(calibration: Calibration, evaluation: Evaluation) -> Calibration:
    from dataclasses import replace

    held_out = held_out_measures(evaluation)
    before = [e.value for e in held_out.ece_before]
    after = [e.value for e in held_out.ece_after]
    whole = None not in before and None not in after
    return replace(
        calibration,
        held_out=held_out,
        ece_before=tuple(v for v in before if v is not None) if whole else None,
        ece_after=tuple(v for v in after if v is not None) if whole else None,
    )


def held_out_measures(evaluation: Evaluation) -> HeldOut:
    """Return the measures before and after of all rounds."""
    group = evaluation.groups[0]
    raw, calibrated = group.raw, group.calibrated
    if calibrated is None or group.change is None or evaluation.evaluation is None:
        raise ValueError("held_out_measures needs an evaluation with a calibration")
    return HeldOut(
        evaluation=evaluation.evaluation,
        ece_before=tuple(p.ece for p in raw.cumulative),
        ece_after=tuple(p.ece for p in calibrated.cumulative),
        ece_change=group.change.ece,
        ece_floor=tuple(p.ece_floor for p in calibrated.cumulative),
        at_floor=tuple(p.ece_at_floor for p in calibrated.cumulative),
        brier_before=tuple(p.brier for p in raw.cumulative),
        brier_after=tuple(p.brier for p in calibrated.cumulative),
        auroc_before=tuple(p.auroc for p in raw.cumulative),
        auroc_after=tuple(p.auroc for p in calibrated.cumulative),
    )
