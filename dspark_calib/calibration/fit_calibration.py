"""`fit-sts` as one call: check the trace, fit on all prompts, judge out of fold, decide, and record it all."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.baselines import compute_baselines
from dspark_calib.calibration.cross_fit import REPEATS, cross_fit_temperatures
from dspark_calib.calibration.decision import decide
from dspark_calib.calibration.evaluate import Evaluation, evaluate
from dspark_calib.calibration.file import Calibration
from dspark_calib.calibration.fit_record import Grid, Objective, Selection, TemperatureFit
from dspark_calib.calibration.joint import refine_jointly
from dspark_calib.calibration.reference_fitters import fit_reference, reference_rule
from dspark_calib.calibration.rows import FitRows
from dspark_calib.calibration.sample import Sample
from dspark_calib.calibration.sts import fit_sts
from dspark_calib.calibration.tables import HeldOut
from dspark_calib.calibration.transfer import compute_transfer, fit_groups
from dspark_calib.diagnostics.checks import check_trace
from dspark_calib.diagnostics.finding import require_accepted
from dspark_calib.metrics.bins import DEFAULT_BINS
from dspark_calib.metrics.judged import JudgedTrace
from dspark_calib.metrics.numbering import Grouping
from dspark_calib.metrics.passes import Progress
from dspark_calib.metrics.scored_rows import View
from dspark_calib.trace.store import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """How temperatures are fitted on any rows: the same for all prompts and without a fold.

    Attributes:
        objective: What to minimise.
        grid: `default`, or `sglang` or `deepspec` to reproduce those fitters.
        select: Rule among good temperatures.
        joint: Whether a joint refinement follows the sequential pass.
        bins: Of the ECE.
        seed: Of the replicates.
    """

    objective: Objective = "ece"
    grid: Grid = "default"
    select: Selection = "parsimonious"
    joint: bool = False
    bins: int = DEFAULT_BINS
    seed: int = 0

    @property
    def all_rows(self) -> bool:
        """Whether positions without a label count as rejected."""
        return self.grid != "default" and reference_rule(self.grid).all_rows

    def temperatures(
        self, judged: JudgedTrace, view: View, members: npt.NDArray[np.bool_], row_limit: int | None = None
    ) -> tuple[float, ...]:
        """Fit the clusters marked, bool [C], without intervals; `row_limit` as in `FitRows`."""
        return self(FitRows(judged, view, members, row_limit, all_rows=self.all_rows), details=False).temperatures

    def __call__(
        self, rows: FitRows, *, details: bool = True, told: Callable[[int], None] | None = None
    ) -> TemperatureFit:
        """Fit on the rows given.

        Args:
            rows: The rows.
            details: Whether intervals and curves are wanted.
            told: Called with the number of positions done.
        """
        if self.grid != "default":
            return fit_reference(rows, self.grid)
        fit = fit_sts(
            rows,
            objective=self.objective,
            select=self.select,
            bins=self.bins,
            seed=self.seed,
            details=details,
            told=told,
        )
        return self._refined(rows, fit) if self.joint else fit

    def _refined(self, rows: FitRows, fit: TemperatureFit) -> TemperatureFit:
        movable = tuple("kept_at_identity" not in p.flags for p in fit.positions)
        refined = refine_jointly(
            rows.sample(), rows.hashes, fit.temperatures, bins=self.bins, seed=self.seed, movable=movable
        )
        positions = tuple(replace(p, temperature=t) for p, t in zip(fit.positions, refined, strict=True))
        return replace(fit, positions=positions, joint=True)


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
    threads: int = 2,
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
        threads: Threads of every pass; no number depends on them.
        progress: Called with the name of the step and the rows done.

    Raises:
        FindingsNotAccepted: If a check on the trace found something that stops a fit.
        InsufficientData: If the trace holds no rounds.
    """
    judged = JudgedTrace(trace, by, threads)
    findings = check_trace(trace, judged)
    require_accepted(findings, accept)
    procedure = Procedure(objective=objective, grid=grid, select=select, joint=joint, bins=bins, seed=seed)
    view = fitting_view(judged, objective, grid)
    steps = Steps(trace.num_rounds, progress)
    fit = procedure(FitRows(judged, view, all_rows=procedure.all_rows), told=steps.of("fit positions", trace.gamma))
    cross_fit = None
    if holdout > 0 and len(judged.clusters) > 1:
        cross_fit = cross_fit_temperatures(
            judged,
            view,
            procedure.temperatures,
            holdout=holdout,
            bins=bins,
            seed=seed,
            told=steps.of("fit without each fold", REPEATS),
        )
    calibration = replace(
        _described(trace, judged),
        temperatures=fit.temperatures,
        bins=bins,
        seed=seed,
        fit=fit,
        cross_fit=cross_fit,
        findings=findings,
        accepted=tuple(sorted(f.name for f in findings if f.severity == "stop")),
    )
    sample = Sample.of(judged, view)
    calibration = replace(calibration, baselines=compute_baselines(judged, sample, cross_fit, fit.temperatures, bins))
    if by is not None:
        by_group = fit_groups(judged, view, procedure.temperatures)
        transfer = compute_transfer(
            judged, view, procedure.temperatures, by_group, holdout=holdout, bins=bins, seed=seed
        )
        calibration = replace(calibration, by_group=by_group, transfer=transfer)
    return decide(
        _measured(calibration, evaluate(trace, calibration, bins=bins, seed=seed, progress=progress, judged=judged))
    )


def fitting_view(judged: JudgedTrace, objective: Objective, grid: Grid = "default") -> View:
    """Return the view a fit looks at.

    Rounds cut by a scheduler carry valid labels in the conditional view only. The likelihood of accepted lengths
    is a product over judged drafts, so `nll` looks at them too. Other fitters' rules know one view alone.
    """
    if grid != "default":
        return "cumulative"
    return "conditional" if judged.acceptance.censored or objective == "nll" else "cumulative"


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
