"""`fit-sts` as one call: check the trace, fit on all prompts, judge out of fold, decide, and record it all."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from dspark_calib.calibration.baselines import compute_baselines
from dspark_calib.calibration.cross_fit import REPEATS, cross_fit_temperatures
from dspark_calib.calibration.decision import decide
from dspark_calib.calibration.evaluate import Evaluation, evaluate
from dspark_calib.calibration.file import Calibration
from dspark_calib.calibration.fitting.fit_record import Grid, Objective, Selection
from dspark_calib.calibration.fitting.procedure import Procedure
from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.calibration.rows.sample import Sample
from dspark_calib.calibration.tables import HeldOut
from dspark_calib.calibration.transfer import compute_transfer, fit_groups
from dspark_calib.diagnostics.checks import check_trace
from dspark_calib.diagnostics.finding import require_accepted
from dspark_calib.errors import ConfigError
from dspark_calib.metrics.bins import DEFAULT_BINS
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.numbering import Grouping
from dspark_calib.metrics.rows.passes import Progress
from dspark_calib.metrics.rows.ray_shards import shards_on_ray
from dspark_calib.trace.store import Trace

Workers = int | Literal["ray"]


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
    workers: Workers = 2,
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
        workers: Threads of every pass, on which no number depends; or `ray`, to run the passes over all rows on Ray
            actors, one for each file or group of files, whose sums agree with those made here to rounding.
        progress: Called with the name of the step and the rows done.

    Raises:
        FindingsNotAccepted: If a check on the trace found something that stops a fit.
        InsufficientData: If the trace holds no rounds.
        ConfigError: If another fitter is to be reproduced with what it does not do.
    """
    if grid != "default" and (objective != "ece" or joint):
        raise ConfigError(
            f"--grid {grid} reproduces a fitter that minimises the ECE of one position after the other; "
            "leave out --objective and --joint"
        )
    procedure = Procedure(objective=objective, grid=grid, select=select, joint=joint, bins=bins, seed=seed)
    steps = Steps(trace.num_rounds, progress)
    with _judged(trace, by, workers) as judged:
        findings = check_trace(trace, judged)
        require_accepted(findings, accept)
        calibration = replace(
            _fitted(_described(trace, judged), judged, procedure, holdout, steps),
            findings=findings,
            accepted=tuple(sorted(f.name for f in findings if f.severity == "stop")),
        )
        if by is not None:
            calibration = _with_groups(calibration, judged, procedure, holdout)
        evaluation = evaluate(trace, calibration, bins=bins, seed=seed, progress=progress, judged=judged)
    return decide(_measured(calibration, evaluation))


@contextmanager
def _judged(trace: Trace, by: Grouping | None, workers: Workers) -> Iterator[JudgedTrace]:
    if workers != "ray":
        yield JudgedTrace(trace, by, workers)
        return
    with shards_on_ray(JudgedTrace(trace, by)) as judged:
        yield judged


def _fitted(
    described: Calibration, judged: JudgedTrace, procedure: Procedure, holdout: float, steps: "Steps"
) -> Calibration:
    """Add the fit, the fits without each fold, and what other ways would reach."""
    view, bins = procedure.view(judged), procedure.bins
    rows = FitRows(judged, view, all_rows=procedure.all_rows)
    fit = procedure(rows, told=steps.of("fit positions", judged.gamma))
    cross_fit = None
    if holdout > 0 and len(judged.clusters) > 1:
        told = steps.of("fit without each fold", REPEATS)
        cross_fit = cross_fit_temperatures(
            judged, view, procedure.temperatures, holdout=holdout, bins=bins, seed=procedure.seed, told=told
        )
    return replace(
        described,
        temperatures=fit.temperatures,
        bins=bins,
        seed=procedure.seed,
        fit=fit,
        cross_fit=cross_fit,
        baselines=compute_baselines(judged, Sample.of(judged, view), cross_fit, fit.temperatures, bins),
    )


def _with_groups(calibration: Calibration, judged: JudgedTrace, procedure: Procedure, holdout: float) -> Calibration:
    view, fit = procedure.view(judged), procedure.temperatures
    by_group = fit_groups(judged, view, fit)
    transfer = compute_transfer(judged, view, fit, by_group, holdout=holdout, bins=procedure.bins, seed=procedure.seed)
    return replace(calibration, by_group=by_group, transfer=transfer)


@dataclass(frozen=True, slots=True)
class Steps:
    """Tells of work that is not counted in rows, as if it were: a share of all rows for a share of the step."""

    rounds: int
    progress: Progress | None

    def of(self, name: str, parts: int) -> Callable[[int], None] | None:
        """Return what to call with the number of parts done."""
        progress = self.progress
        return None if progress is None else lambda done: progress(name, self.rounds * done // parts)


def _described(trace: Trace, judged: JudgedTrace) -> Calibration:
    source = trace.provenance
    return Calibration(
        temperatures=(1.0,) * trace.gamma,
        dataset="+".join(sorted({dataset for dataset, _ in judged.clusters.keys})),
        num_samples=judged.rounds,
        target=source.target,
        drafter=source.drafter,
        confidence_source=source.confidence_source,
        label_law=source.label_law,
        sampling_temperature=source.temperature,
        trace_hash=trace.content_hash,
        prompts=judged.clusters.prompts,
    )


def _measured(calibration: Calibration, evaluation: Evaluation) -> Calibration:
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
    """Return the measures before and after of all rounds.

    Raises:
        ValueError: If the evaluation had no calibration.
    """
    group = evaluation.groups[0]
    raw, calibrated = group.raw, group.calibrated
    if calibrated is None or group.change is None or evaluation.evaluation is None:
        raise ValueError("held_out_measures needs an evaluation with a calibration")
    return HeldOut(
        evaluation=evaluation.evaluation,
        ece_before=tuple(p.ece for p in raw.cumulative),
        ece_after=tuple(p.ece for p in calibrated.cumulative),
        ece_change=group.change.ece,
        mean_ece_change=group.change.mean_ece,
        ece_floor=tuple(p.ece_floor for p in calibrated.cumulative),
        at_floor=tuple(p.ece_at_floor for p in calibrated.cumulative),
        brier_before=tuple(p.brier for p in raw.cumulative),
        brier_after=tuple(p.brier for p in calibrated.cumulative),
        auroc_before=tuple(p.auroc for p in raw.cumulative),
        auroc_after=tuple(p.auroc for p in calibrated.cumulative),
    )
