"""May these temperatures ship? One outcome from the paired change of the mean ECE and the findings."""

from dspark_calib.metrics.estimate import UNDEFINED, Estimate
from dspark_calib.summary.measures import Group, Measures
from dspark_calib.summary.record import Evaluation, Finding, Outcome, Verdict


def compute_verdict(
    evaluation: Evaluation | None,
    groups: tuple[Group, ...],
    findings: tuple[Finding, ...],
    accepted: tuple[str, ...],
    *,
    identity: bool = False,
) -> Verdict:
    """Decide.

    With a calibration: `ship` if the whole interval of the paired change of mean ECE lies below zero,
    `do_not_ship` if it lies above, else `keep_raw`; `undecided` if the numbers are in-sample, undefined, or a
    finding stands that stops a fit. Temperatures that are all 1 are `keep_raw`, whatever fits without a fold would do.
    Without: `raw_at_floor` if no position can be told from perfect
    calibration, else `fit_needed`. Counters without rounds: `no_confidence`.

    Args:
        evaluation: How calibrated numbers were had, or None without a calibration.
        groups: "all" first; empty for counters.
        findings: Of the checks on the trace.
        accepted: Names of findings that the fit was told to accept.
        identity: Whether every temperature is 1.
    """
    if not groups:
        return _verdict("no_confidence", ())
    whole = groups[0]
    stops = tuple(
        finding.name for finding in findings if finding.severity == "stop" and not {finding.name, "all"} & set(accepted)
    )
    if whole.change is None:
        return _raw_verdict(whole, stops)
    reasons = (*stops, *_gaps(evaluation, whole.change.mean_ece))
    settled: Outcome = "keep_raw" if identity else _outcome(whole.change.mean_ece)
    outcome: Outcome = "undecided" if reasons else settled
    return _verdict(outcome, reasons, groups)


def _raw_verdict(whole: Group, stops: tuple[str, ...]) -> Verdict:
    at_floor = [row.ece_at_floor for row in whole.raw.positions if row.ece_at_floor is not None]
    if stops:
        return _verdict("undecided", stops, (whole,))
    if not at_floor:
        return _verdict("undecided", ("undefined",), (whole,))
    return _verdict("raw_at_floor" if all(at_floor) else "fit_needed", (), (whole,))


def _gaps(evaluation: Evaluation | None, change: Estimate) -> tuple[str, ...]:
    if evaluation == "in_sample":
        return ("in_sample",)
    if change.value is None:
        return ("undefined",)
    return () if change.low is not None else ("no_interval",)


def _outcome(change: Estimate) -> Outcome:
    if change.high is not None and change.high < 0:
        return "ship"
    if change.low is not None and change.low > 0:
        return "do_not_ship"
    return "keep_raw"


def _verdict(outcome: Outcome, reasons: tuple[str, ...], groups: tuple[Group, ...] = ()) -> Verdict:
    whole = groups[0] if groups else None
    change = whole.change if whole else None
    return Verdict(
        outcome=outcome,
        reasons=reasons,
        mean_ece_change=change.mean_ece if change else UNDEFINED,
        worst_position=_worst_position(whole.calibrated or whole.raw) if whole else None,
        worse_positions=tuple(row.position for row in change.positions if _clearly_worse(row.ece)) if change else (),
        worse_groups=tuple(g.name for g in groups[1:] if g.change and _clearly_worse(g.change.mean_ece)),
    )


def _clearly_worse(change: Estimate) -> bool:
    return change.low is not None and change.low > 0


def _worst_position(measures: Measures) -> int | None:
    excess = [
        (row.ece.value - (row.ece_floor or 0.0), row.position)
        for row in measures.positions
        if row.ece.value is not None
    ]
    return max(excess)[1] if excess else None
