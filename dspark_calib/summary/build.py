"""A report from a trace: every number of the page is made here or in the rooms below."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dspark_calib.calibration import Calibration, Evaluation, GroupScores, evaluate
from dspark_calib.diagnostics import Finding as CheckFinding
from dspark_calib.diagnostics import check_trace
from dspark_calib.scheduling.simulation import Simulation
from dspark_calib.summary.calibrated import held_out_temperatures, temperature_curves, temperature_tuple, transfer_of
from dspark_calib.summary.comparison import compute_comparison, evaluation_side, json_side
from dspark_calib.summary.contrasts import Comparison
from dspark_calib.summary.details import Drafter, Slices
from dspark_calib.summary.proxies import compute_proxies
from dspark_calib.summary.record import Finding, Report
from dspark_calib.summary.replays import advice_of, throughput_of
from dspark_calib.summary.scores import group_of
from dspark_calib.summary.slices import SliceSums, View, slice_columns
from dspark_calib.summary.sources import (
    NamedCounts,
    check_calibration,
    counted_drafter,
    counters_source,
    drafter_names,
    source_of,
)
from dspark_calib.summary.survey import survey_batches
from dspark_calib.summary.sweep import SweepCounts
from dspark_calib.summary.verdict import compute_verdict
from dspark_calib.trace import Labels, Trace

By = Literal["domain", "dataset"]
Progress = Callable[[str, int], None]

BINS = 20
DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCalibration:
    """A calibration and the file it came from."""

    file: str
    calibration: Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSide:
    """What a report is compared with: a trace, or the JSON of an earlier report."""

    name: str
    trace: Trace | None = None
    report: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Survey:
    sweeps: SweepCounts | None
    slices: tuple[Slices, ...]
    domains: tuple[str, ...]
    datasets: tuple[str, ...]


def compute_report(
    trace: Trace,
    *,
    calibration: NamedCalibration | None = None,
    beside: Sequence[Trace] = (),
    counters: Sequence[NamedCounts] = (),
    old: OldSide | None = None,
    simulation: Simulation | None = None,
    by: By = "domain",
    bins: int = BINS,
    draws: int = DRAWS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Measure a trace and return the record of its report.

    Args:
        trace: The rounds under judgement.
        calibration: Temperatures to judge; None reports raw confidences.
        beside: Traces of other drafters for the same target.
        counters: Acceptance counts without rounds.
        old: What to compare with.
        simulation: Replay of this trace on a speed curve.
        by: Column whose values make the groups.
        bins: Bins of the ECE.
        draws: Bootstrap draws.
        seed: Of the draws.
        progress: Called with the name of a step and the rows done in it.

    Raises:
        CalibrationFileError: If the calibration belongs to another checkpoint or block length.
        InsufficientData: If the trace holds no rounds.
        TraceFormatError: If OLD is no report.
    """
    fitted = None if calibration is None else calibration.calibration
    if calibration is not None:
        check_calibration(trace, calibration.calibration, calibration.file)
    evaluation = evaluate(trace, fitted, by=by, bins=bins, draws=draws, seed=seed, progress=progress)
    shown = _distinct_groups(evaluation)
    survey = _survey(trace, fitted, evaluation, by, tuple(g.name for g in shown[1:]), progress)
    names = (None, *(group.name for group in shown[1:]))
    sweeps = [None if survey.sweeps is None else survey.sweeps.sweep(name) for name in names]
    groups = tuple(group_of(scores, sweep) for scores, sweep in zip(shown, sweeps, strict=True))
    findings = _findings(check_trace(trace), evaluation, simulation)
    return Report(
        source=source_of(trace, evaluation.clusters, survey.domains, survey.datasets),
        evaluation=evaluation.evaluation,
        verdict=compute_verdict(
            evaluation.evaluation,
            groups,
            findings,
            _accepted(fitted),
            identity=fitted is not None and fitted.is_identity,
        ),
        temperatures=None if calibration is None else temperature_tuple(calibration.calibration, calibration.file),
        findings=findings,
        groups=groups,
        slices=survey.slices,
        proxies=compute_proxies(trace, seed),
        curves=() if fitted is None else temperature_curves(fitted),
        baselines=() if fitted is None else fitted.baselines,
        transfer=None if fitted is None else transfer_of(fitted),
        drafters=(*_drafters(trace, shown[0], beside, seed), *(counted_drafter(named) for named in counters)),
        comparison=None if old is None else _comparison(evaluation, old, fitted, by, bins, draws, seed),
        throughput=() if simulation is None else throughput_of(simulation),
        advice=() if simulation is None else advice_of(simulation),
        bins=bins,
        draws=draws,
        seed=seed,
    )


def counters_report(counters: Sequence[NamedCounts]) -> Report:
    """Return a report of acceptance counts alone: it says what was accepted and nothing about confidence."""
    return Report(
        source=counters_source(counters),
        evaluation=None,
        verdict=compute_verdict(None, (), (), ()),
        temperatures=None,
        findings=(),
        groups=(),
        slices=(),
        proxies=(),
        curves=(),
        baselines=(),
        transfer=None,
        drafters=tuple(counted_drafter(named) for named in counters),
        comparison=None,
        throughput=(),
        advice=(),
        bins=BINS,
        draws=0,
        seed=0,
    )


def _distinct_groups(evaluation: Evaluation) -> tuple[GroupScores, ...]:
    """Return "all" and the named groups; a single group that is everything adds nothing to "all"."""
    whole, *named = evaluation.groups
    return (whole,) if len(named) == 1 and named[0].rounds == whole.rounds else (whole, *named)


def _survey(
    trace: Trace,
    fitted: Calibration | None,
    evaluation: Evaluation,
    by: By,
    groups: tuple[str, ...],
    progress: Progress | None,
) -> _Survey:
    cut = evaluation.censored > 0
    view: View = "conditional" if cut else "cumulative"
    sweeps = SweepCounts(trace.gamma, groups, by)
    sums = [SliceSums("confidence_1"), SliceSums("prompt_length"), SliceSums("depth")]
    names: dict[str, set[str]] = {"domain": set(), "dataset": set()}
    temperatures_of = None if fitted is None else held_out_temperatures(fitted, trace)
    done = 0
    for batch in survey_batches(trace, temperatures_of):
        sweeps.add(batch)
        columns = slice_columns(batch, view)
        for accumulator in sums:
            accumulator.add(batch, columns)
        for column, known in names.items():
            known.update(_names(getattr(batch.rounds, column)))
        done += len(batch.rounds)
        if progress is not None:
            progress("slice", done)
    slices = tuple(found for accumulator in sums if (found := accumulator.slices(view)) is not None)
    domains, datasets = (tuple(sorted(names[column])) for column in ("domain", "dataset"))
    return _Survey(sweeps=None if cut else sweeps, slices=slices, domains=domains, datasets=datasets)


def _names(labels: Labels) -> set[str]:
    return {labels.names[code] for code in np.unique(labels.codes).tolist() if code >= 0}


def _findings(
    checks: Sequence[CheckFinding], evaluation: Evaluation, simulation: Simulation | None
) -> tuple[Finding, ...]:
    order = {"stop": 0, "warning": 1, "note": 2}
    found = [Finding(name=c.name, severity=c.severity, count=c.count, message=c.message) for c in checks]
    said = [("evaluation", text) for text in evaluation.warnings]
    said += [("replay", text) for text in (simulation.warnings if simulation else ())]
    found += [Finding(name=name, severity="note", count=None, message=text) for name, text in said]
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))


def _accepted(fitted: Calibration | None) -> tuple[str, ...]:
    return () if fitted is None else fitted.accepted


def _drafters(trace: Trace, whole: GroupScores, beside: Sequence[Trace], seed: int) -> tuple[Drafter, ...]:
    names = drafter_names((trace, *beside))
    first = Drafter(name=names[0], rounds=whole.rounds, acceptance=whole.acceptance, source="trace")
    others = (evaluate(other, None, draws=0, seed=seed).groups[0] for other in beside)
    return (
        first,
        *(
            Drafter(name=name, rounds=other.rounds, acceptance=other.acceptance, source="trace")
            for name, other in zip(names[1:], others, strict=True)
        ),
    )


def _comparison(
    new: Evaluation, old: OldSide, fitted: Calibration | None, by: By, bins: int, draws: int, seed: int
) -> Comparison:
    if old.trace is None:
        report = old.report or {}
        both = new.evaluation is not None and report.get("evaluation") is not None
        which: Literal["raw", "calibrated"] = "calibrated" if both else "raw"
        return compute_comparison(
            evaluation_side(new, which), json_side(report, which, old.name), name=old.name, confidences=which
        )
    same = fitted is not None and _belongs(old.trace, fitted)
    before = evaluate(old.trace, fitted if same else None, by=by, bins=bins, draws=draws, seed=seed)
    which = "calibrated" if same else "raw"
    return compute_comparison(
        evaluation_side(new, which), evaluation_side(before, which), name=old.name, confidences=which
    )


def _belongs(trace: Trace, fitted: Calibration) -> bool:
    drafter = fitted.drafter.content_hash
    return fitted.gamma == trace.gamma and drafter is not None and drafter == trace.provenance.drafter.content_hash
