"""What stands on the first screen and at the end: verdict, settings, key numbers, findings, provenance."""

from dataclasses import dataclass
from typing import Any

from dspark_calib.engines.deepinfer import deepinfer_variables
from dspark_calib.engines.table import TemperatureTable
from dspark_calib.errors import ExportError
from dspark_calib.summary.record import Finding, Model, Report, TemperatureTuple
from dspark_calib_reports.numerals import count, decimal, fraction, interval, shown_name, tuple_text
from dspark_calib_reports.verdict import HEADLINES, state_evaluation, state_verdict, state_worst_position

MARKS = {
    "ship": "✓",
    "raw_at_floor": "✓",
    "do_not_ship": "✗",
    "keep_raw": "=",
    "undecided": "?",
    "fit_needed": "→",
    "no_confidence": "·",
}
SEVERITIES = {"stop": "Stops a fit", "warning": "Warning", "note": "Note"}
FEW_PROMPTS = 30
NAMES_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One number with its name."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Text to copy."""

    key: str
    label: str
    text: str
    hint: str = ""


def first_screen(report: Report) -> dict[str, Any]:
    """Return what the template needs beside the sections."""
    return {
        "outcome": report.verdict.outcome,
        "headline": HEADLINES[report.verdict.outcome],
        "mark": MARKS[report.verdict.outcome],
        "verdict": state_verdict(report),
        "cautions": cautions(report),
        "drafter": model_name(report.source.drafter, "unnamed drafter"),
        "target": model_name(report.source.target, "an unnamed target"),
        "settings_title": _settings_title(report),
        "settings": settings(report.temperatures),
        "facts": key_facts(report),
        "findings": tuple(_finding(finding) for finding in report.findings),
        "provenance": provenance(report),
        "method": method(report),
    }


def cautions(report: Report) -> tuple[str, ...]:
    """Return what a reader must know before believing the verdict."""
    worst = state_worst_position(report)
    lines = [] if worst is None else [worst]
    if report.evaluation is not None:
        lines.append(f"Calibrated numbers are {state_evaluation(report)}.")
    if report.source.clusters.startswith("blocks"):
        lines.append(f"The trace has no prompt ids: {report.source.clusters} stand in for prompts in every interval.")
    elif report.source.clusters != "prompts":
        lines.append(f"Behind every interval: {report.source.clusters}.")
    if report.groups and report.groups[0].prompts < FEW_PROMPTS:
        lines.append(f"Only {report.groups[0].prompts} prompts: intervals from fewer than 30 are too narrow.")
    if report.temperatures is not None and report.temperatures.decision == "keep_identity":
        lines.append(f"The fit advises to keep T = 1: {report.temperatures.reason}.")
    if report.verdict.worse_groups:
        lines.append(f"Clearly worse with the temperatures in: {_names(report.verdict.worse_groups)}.")
    if report.verdict.worse_positions:
        lines.append(f"Clearly worse at position {', '.join(map(str, report.verdict.worse_positions))}.")
    if report.source.anchor_policy == "all":
        lines.append("Collected with --anchors all: an engine visits other rounds, see --anchors loop.")
    return tuple(lines)


def settings(temperatures: TemperatureTuple | None) -> tuple[Setting, ...]:
    """Return the tuple and the engines' settings to copy."""
    if temperatures is None:
        return ()
    plain = Setting(
        key="temperatures-text", label="temperatures, position 1 first", text=tuple_text(temperatures.values)
    )
    sglang = Setting(
        key="sglang-text",
        label="SGLang",
        text="--speculative-dspark-confidence-sts-path calibration.json",
        hint="The calibration file loads as it is, in TensorRT-LLM (confidence_calibration_path) too.",
    )
    return (plain, *_deepinfer(temperatures), sglang)


def key_facts(report: Report) -> tuple[Fact, ...]:
    """Return the numbers of the first screen."""
    if not report.groups:
        return tuple(_drafter_facts(report))
    group = report.groups[0]
    tau = group.acceptance.accepted_length
    facts = [
        Fact(label="rounds", value=count(group.rounds)),
        Fact(label="prompts", value=count(group.prompts), detail=_unit(report)),
        Fact(label="domains", value=count(len(report.source.domains)), detail=_names(report.source.domains)),
        Fact(label="accepted length τ", value=decimal(tau.value), detail=f"95 % interval {interval(tau, 2)}"),
    ]
    floor = f"noise floor {fraction(group.raw.mean_ece_floor)}"
    raw = fraction(group.raw.mean_ece.value)
    if group.calibrated is None:
        return (*facts, Fact(label="mean ECE, raw", value=raw, detail=floor))
    after = f"{raw} → {fraction(group.calibrated.mean_ece.value)}"
    how = {"out_of_fold": "held out", "independent": "independent", "in_sample": "in-sample"}
    label = f"mean ECE, {how[report.evaluation or 'in_sample']}"
    return (*facts, Fact(label=label, value=after, detail=floor))


def provenance(report: Report) -> tuple[Fact, ...]:
    """Return where the rounds and temperatures came from."""
    source = report.source
    facts = [
        Fact(label="target", value=_model(source.target)),
        Fact(label="drafter", value=_model(source.drafter)),
        Fact(label="block", value=f"γ = {source.gamma}, confidence: {source.confidence_source}"),
        Fact(label="labels", value=_law(report)),
        Fact(label="anchors", value=source.anchor_policy or "not recorded"),
        Fact(label="seed", value="–" if source.seed is None else str(source.seed)),
        Fact(label="data sets", value=_names(source.datasets) or "–"),
        Fact(label="trace", value=source.content_hash or "–"),
        Fact(label="collected with", value=", ".join(f"{k} {v}" for k, v in sorted(source.versions.items())) or "–"),
    ]
    if report.temperatures is not None:
        facts.append(Fact(label="calibration", value=_calibration(report.temperatures)))
    return (*facts, *(Fact(label="note", value=note) for note in source.notes))


def method(report: Report) -> tuple[str, ...]:
    """Return how the numbers were made, one sentence each."""
    draws = f"{count(report.draws)} bootstrap draws with seed {report.seed}"
    return (
        f"ECE: {report.bins} equal-width bins of prefix survival, DeepSpec's rule (float64, clamp 1e-8).",
        f"Intervals: 95 %, clustered by {report.source.clusters}; {draws}.",
        "Intervals are basic (pivotal) for ECE and clustered DeLong for AUROC.",
        f"Calibrated numbers: {state_evaluation(report)}.",
        "Positions past an accepted end of text carry no label and are left out, never counted as rejected.",
        "τ counts accepted drafts and the bonus token; rounds cut by the length limit are left out of it.",
    )


def _deepinfer(temperatures: TemperatureTuple) -> tuple[Setting, ...]:
    try:
        variables = deepinfer_variables(TemperatureTable(temperatures=temperatures.values))
    except ExportError:
        return ()
    text = " ".join(f"{name}={value}" for name, value in variables.items())
    return (Setting(key="deepinfer-text", label="DeepInfer", text=text, hint="Environment of the server process."),)


def _settings_title(report: Report) -> str:
    return "Temperatures" if report.verdict.outcome == "ship" else "Temperatures under test"


def _finding(finding: Finding) -> dict[str, str | None]:
    return {
        "name": shown_name(finding.name),
        "severity": finding.severity,
        "severity_word": SEVERITIES[finding.severity],
        "count": None if finding.count is None else count(finding.count),
        "message": finding.message,
    }


def _drafter_facts(report: Report) -> list[Fact]:
    return [
        Fact(
            label=f"τ of {shown_name(drafter.name)}",
            value=decimal(drafter.acceptance.accepted_length.value),
            detail=f"{count(drafter.rounds)} rounds",
        )
        for drafter in report.drafters
    ]


def _unit(report: Report) -> str:
    return "" if report.source.clusters == "prompts" else report.source.clusters


def _names(names: tuple[str, ...]) -> str:
    shown = ", ".join(shown_name(name) for name in names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"


def model_name(model: Model, otherwise: str) -> str:
    """Return what a page calls a model."""
    return otherwise if model.name is None else shown_name(model.name)


def _model(model: Model) -> str:
    return ", ".join(part for part in (model.name, model.content_hash) if part) or "not recorded"


def _law(report: Report) -> str:
    temperature = "" if report.source.temperature is None else f" at temperature {report.source.temperature:g}"
    return f"{report.source.label_law or 'law not recorded'}{temperature}"


def _calibration(temperatures: TemperatureTuple) -> str:
    how = " ".join(word for word in (temperatures.selection, temperatures.objective) if word)
    return f"{shown_name(temperatures.file)}, fitted on {count(temperatures.rounds)} rounds" + (
        f" ({how})" if how else ""
    )
