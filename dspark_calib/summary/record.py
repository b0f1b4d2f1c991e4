"""The record behind `report --json` and the page: plain numbers, each with its count and interval.

What is here: the shape of the whole. Its parts are in `measures` (one group of rounds), `details` and
`contrasts`; they are made in the other modules of this room and written as JSON by `json_form`.
"""

from dataclasses import dataclass
from typing import Literal

from dspark_calib.calibration.tables import Baseline
from dspark_calib.metrics.estimate import Estimate
from dspark_calib.summary.contrasts import Advice, Comparison, Throughput
from dspark_calib.summary.details import Drafter, Proxy, Slices, TemperatureCurve, Transfer
from dspark_calib.summary.measures import Group

SCHEMA = "dspark-calib/report/1"

Evaluation = Literal["out_of_fold", "independent", "in_sample"]
Outcome = Literal["ship", "keep_raw", "do_not_ship", "undecided", "fit_needed", "raw_at_floor", "no_confidence"]
Severity = Literal["stop", "warning", "note"]
Change = Literal["worse", "better", "unclear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something the checks on the trace noticed, in the words of the check."""

    name: str
    severity: Severity
    count: int | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperatureTuple:
    """The temperatures that would ship, as the calibration file has them.

    Attributes:
        values: γ temperatures.
        intervals: 95 % interval of each, or None.
        cross_fits: Smallest and largest T of each over the fits without a fold of prompts, or None.
        flags: Names of flags per position.
        file: Name of the calibration file, without its folder.
        content_hash: Of the trace it was fitted on.
        rounds: Rounds it was fitted on.
        selection: `parsimonious` or `paper`, or None for a file of another tool.
        objective: What the fit minimised (`ece`, `brier`, `nll`), or None.
        decision: `adopt` or `keep_identity`, or None for a file of another tool.
        reason: Why, in a sentence.
    """

    values: tuple[float, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    cross_fits: tuple[tuple[float, float] | None, ...]
    flags: tuple[tuple[str, ...], ...]
    file: str
    content_hash: str | None
    rounds: int
    selection: str | None
    objective: str | None
    decision: str | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """May these temperatures ship? An outcome and the numbers it rests on.

    Attributes:
        outcome: See `verdict.compute_verdict`.
        reasons: Names of the findings or conditions that decided it.
        mean_ece_change: Calibrated minus raw mean ECE, or UNDEFINED.
        worst_position: Position with the largest remaining ECE over its floor, or None.
        worse_positions: Positions whose ECE the temperatures clearly raise.
        worse_groups: Groups whose mean ECE they clearly raise.
    """

    outcome: Outcome
    reasons: tuple[str, ...]
    mean_ece_change: Estimate
    worst_position: int | None
    worse_positions: tuple[int, ...] = ()
    worse_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A checkpoint: its name and the hash of its contents, where known."""

    name: str | None
    content_hash: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where the rounds came from; what `trace.json` says, nothing of this machine.

    Attributes:
        gamma: γ.
        target: The large model.
        drafter: The model that proposes the blocks.
        confidence_source: `head`, or the proxy.
        label_law: `sampled` or `greedy`, None where an import does not say.
        temperature: Sampling temperature.
        anchor_policy: `loop` or `all`, None where unknown.
        seed: Of the collection, or None.
        content_hash: Of the trace.
        versions: Tool and library versions at collection.
        notes: Free words from the trace.
        clusters: What stands behind every interval: `prompts` or `blocks of 100 rounds`.
        domains: Names of the domains in the trace.
        datasets: Names of the data sets in the trace.
    """

    gamma: int
    target: Model
    drafter: Model
    confidence_source: str
    label_law: str | None
    temperature: float | None
    anchor_policy: str | None
    seed: int | None
    content_hash: str | None
    versions: dict[str, str]
    notes: tuple[str, ...]
    clusters: str
    domains: tuple[str, ...]
    datasets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything the page says, in one record.

    Attributes:
        source: Where the rounds came from.
        evaluation: How the calibrated numbers were had; None without a calibration.
        verdict: May it ship.
        temperatures: The calibration, or None.
        findings: Worst first.
        groups: "all" first, then each domain or data set.
        slices: Along confidence of position 1, prompt length and depth.
        proxies: Free proxies that the trace carries.
        curves: Objective against temperature; empty without a calibration of this tool.
        baselines: What other ways of fitting reach on the same held-out prompts of the fit.
        transfer: Between domains, or None.
        drafters: This drafter and those beside it.
        comparison: Against OLD, or None.
        throughput: Replay with the SPS curve; empty without one.
        advice: What the replay recommends.
        bins: Bins of the ECE.
        draws: Bootstrap draws behind the intervals.
        seed: Of those draws.
    """

    source: Source
    evaluation: Evaluation | None
    verdict: Verdict
    temperatures: TemperatureTuple | None
    findings: tuple[Finding, ...]
    groups: tuple[Group, ...]
    slices: tuple[Slices, ...]
    proxies: tuple[Proxy, ...]
    curves: tuple[TemperatureCurve, ...]
    baselines: tuple[Baseline, ...]
    transfer: Transfer | None
    drafters: tuple[Drafter, ...]
    comparison: Comparison | None
    throughput: tuple[Throughput, ...]
    advice: tuple[Advice, ...]
    bins: int
    draws: int
    seed: int
