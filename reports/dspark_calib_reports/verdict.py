"""The verdict in words: may these temperatures ship, and what must a reader know before believing it."""

from dspark_calib.summary.record import Report
from dspark_calib_reports.numerals import fraction, interval, signed, with_interval

EVALUATIONS = {
    "out_of_fold": "held out by prompt: each prompt is judged with temperatures fitted without it",
    "independent": "on rounds the temperatures were not fitted on",
    "in_sample": "in-sample: judged on the rounds the temperatures were fitted on, so it flatters",
}
NO_ROUNDS = "These are counters without rounds: they show what was accepted, and nothing about confidence."
HEADLINES = {
    "ship": "Ship these temperatures",
    "keep_raw": "Keep the raw confidences",
    "do_not_ship": "Do not ship these temperatures",
    "undecided": "Not decided",
    "fit_needed": "Fit temperatures first",
    "raw_at_floor": "Raw confidences are calibrated",
    "no_confidence": "Acceptance only",
}
REASONS = {
    "in_sample": "the only numbers there are were measured in sample",
    "few_prompts": "fewer than 30 prompts stand behind the intervals",
    "no_interval": "one prompt gives no interval",
    "undefined": "no position has a defined ECE",
}


def state_verdict(report: Report) -> str:
    """Say in one sentence whether the temperatures may ship, with the interval it rests on."""
    if not report.groups:
        return NO_ROUNDS
    group, verdict = report.groups[0], report.verdict
    change = f"{signed(verdict.mean_ece_change.value)} {interval(verdict.mean_ece_change)}"
    raw, floor = fraction(group.raw.mean_ece.value), fraction(group.raw.mean_ece_floor)
    moves = f"{raw} → {fraction(group.calibrated.mean_ece.value if group.calibrated else None)}"
    sentences = {
        "ship": f"They lower the mean ECE {moves}, a paired change of {change}: the whole interval is below zero.",
        "keep_raw": _no_difference(report, f"mean ECE {moves}, a paired change of {change}"),
        "do_not_ship": f"They make the mean ECE worse: {moves}, a paired change of {change}.",
        "undecided": f"{_reasons(report)} Mean ECE {moves}.",
        "fit_needed": f"They are off: mean ECE {raw} {interval(group.raw.mean_ece)} against a noise floor of {floor}; "
        "run dspark-calib fit-sts on this trace.",
        "raw_at_floor": f"Their mean ECE of {raw} cannot be told from perfect calibration (noise floor {floor}).",
        "no_confidence": NO_ROUNDS,
    }
    return sentences[verdict.outcome]


def state_evaluation(report: Report) -> str:
    """Say how the calibrated numbers were had."""
    return "raw confidences, no calibration" if report.evaluation is None else EVALUATIONS[report.evaluation]


def state_worst_position(report: Report) -> str | None:
    """Name the position with the largest remaining error over its floor, or None."""
    position = report.verdict.worst_position
    if not report.groups or position is None:
        return None
    measures = report.groups[0].calibrated or report.groups[0].raw
    row = measures.positions[position - 1]
    left = f"ECE {with_interval(row.ece)} against a noise floor of {fraction(row.ece_floor)}"
    end = ", which is no more than noise" if row.ece_at_floor else ""
    return f"Farthest from calibrated is position {position}: {left}{end}."


def _no_difference(report: Report, moves: str) -> str:
    if report.temperatures is not None and all(t == 1.0 for t in report.temperatures.values):
        if report.verdict.mean_ece_change.value == 0:
            return f"All temperatures are 1, so nothing changes: {moves}."
        return f"All temperatures are 1, so nothing changes; fits without each fold, judged here, do move: {moves}."
    return f"These rounds show no difference: {moves}."


def _reasons(report: Report) -> str:
    words = "; ".join(REASONS.get(name, f"the finding {name} stands") for name in report.verdict.reasons)
    return f"{words[:1].upper()}{words[1:]}."
