"""The record behind `report --json` and the page: plain numbers, each with its count and interval.

What is here: the shape of the whole. The numbers of one group of rounds are in `measures`; they are
made in the other modules of this room; how they are written as JSON is in `json_form`.
"""

from dataclasses import dataclass
from typing import Literal

from dspark_calib.calibration.tables import Baseline
from dspark_calib.metrics.acceptance import Acceptance
from dspark_calib.metrics.estimate import Estimate
from dspark_calib.summary.measures import Group

SCHEMA = "dspark-calib/report/1"

Evaluation = Literal["out_of_fold", "independent", "in_sample"]
Outcome = Literal["ship", "keep_raw", "do_not_ship", "undecided", "fit_needed", "raw_at_floor", "no_confidence"]
Severity = Literal["stop", "warning", "note"]
Change = Literal["worse", "better", "unclear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCell:
    """Rounds whose slicing quantity lies in [low, high); `high` is None in the last, open cell.

    Biases are of a_k, averaged over observed positions; the calibrated one is undefined without a calibration.
    """

    low: float
    high: float | None
    n: int
    prompts: int
    predicted: float | None
    observed: float | None
    raw_bias: Estimate
    calibrated_bias: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """Calibration along one quantity: `confidence_1`, `prompt_length` or `depth`.

    `view` says whether the bias is that of a_k (`cumulative`) or, on a trace cut by a scheduler, of c_k.
    """

    quantity: Literal["confidence_1", "prompt_length", "depth"]
    view: Literal["cumulative", "conditional"]
    cells: tuple[SliceCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """AUROC given the prefix of one free proxy (`draft_prob`, `margin`, `entropy`), per position.

    `rounds` are those it was measured on: whole prompts, at most some 500,000 rounds.
    """

    name: str
    rounds: int
    auroc_conditional: tuple[Estimate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperatureCurve:
    """Objective of the fit against the temperature of one position, earlier temperatures fixed; in sample.

    Attributes:
        position: k, from 1.
        temperatures: Increasing.
        objective: In-sample objective at each, same length.
        chosen: The temperature in the calibration.
        interval: Its 95 % interval, or None.
        flags: What the fit said about it.
    """

    position: int
    temperatures: tuple[float, ...]
    objective: tuple[float, ...]
    chosen: float
    interval: tuple[float, float] | None
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Mean ECE on the group of the column under temperatures fitted on the group of the row.

    Attributes:
        fitted_on: Names, one a row.
        judged_on: Names, one a column.
        mean_ece: Held out by prompt where both names are the same; None where undefined.
    """

    fitted_on: tuple[str, ...]
    judged_on: tuple[str, ...]
    mean_ece: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """Acceptance of one drafter, for several on one axis.

    Attributes:
        name: What tells it from the others on the page.
        rounds: Rounds behind it (for counters without rounds: drafts of position 1).
        acceptance: Its acceptance; intervals are None for counters.
        source: `trace` or `counters`.
    """

    name: str
    rounds: int
    acceptance: Acceptance
    source: Literal["trace", "counters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One measure of NEW against OLD.

    Attributes:
        group: Name of the group in both.
        measure: `ece`, `bias`, `brier`, `auroc`, `conditional_acceptance`, `mean_ece` or `accepted_length`.
        position: k, or None for measures of the whole block.
        old: Value in OLD.
        new: Value in NEW.
        difference: NEW minus OLD with its interval.
        harm: The difference in standard errors, positive where NEW is worse: one axis for all measures.
        change: `worse` or `better` where the interval excludes 0, else `unclear`.
    """

    group: str
    measure: str
    position: int | None
    old: float | None
    new: float | None
    difference: Estimate
    harm: Estimate
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """NEW against OLD, what got worse first.

    Attributes:
        old: Name of OLD.
        paired: Whether differences were taken on the same prompts.
        confidences: Which confidences were compared.
        rows: Worst first, by difference over standard error.
    """

    old: str
    paired: bool
    confidences: Literal["raw", "calibrated"]
    rows: tuple[ComparisonRow, ...]


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
class Throughput:
    """One policy at one concurrency under one set of confidences, from the replay (`simulate`).

    Attributes:
        policy: Name of the scheduler.
        confidences: `raw`, `calibrated` or `oracle`.
        concurrency: Requests at once.
        tokens_per_second: Of all requests together.
        per_user: Tokens per second and user.
        accepted_length: Realised τ.
        predicted_length: τ the confidences promised.
        budget: Drafts verified per request and step.
        regret: 1 - throughput/throughput of the oracle; undefined without one.
    """

    policy: str
    confidences: Literal["raw", "calibrated", "oracle"]
    concurrency: int
    tokens_per_second: Estimate
    per_user: Estimate
    accepted_length: Estimate
    predicted_length: float | None
    budget: float
    regret: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What the replay recommends at one concurrency.

    Attributes:
        concurrency: Requests at once.
        policy: The lossless policy of highest throughput.
        temperatures: `raw` or `calibrated`.
        gamma: The fewest drafts a block that are not measurably slower.
        tokens_per_second: Of the whole block.
        calibration_gain: Relative gain of calibrated over raw confidences; undefined without a calibration.
        reasons: Sentences for the reader.
    """

    concurrency: int
    policy: str
    temperatures: str
    gamma: int
    tokens_per_second: float
    calibration_gain: Estimate
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything the page says, in one record.

    Attributes:
        source: Where the rounds came from.
        evaluation: How the calibrated numbers were had; None without a calibration.
        verdict: May it ship.
        temperatures: The calibration, or None.
        findings: Worst first.
        groups: "all" first, then by name.
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
