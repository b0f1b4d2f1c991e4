"""Reports made by hand: what the page shows is tested without a single statistic behind it.

The numbers follow simple formulas and the shape of the paper's Figure 6; nothing here is measured.
"""

import itertools
import math
from dataclasses import replace

from dspark_calib.calibration.tables import Baseline
from dspark_calib.metrics.acceptance import Acceptance
from dspark_calib.metrics.corp import Decomposition
from dspark_calib.metrics.estimate import UNDEFINED, Estimate
from dspark_calib.summary.contrasts import Advice, Comparison, ComparisonRow, Throughput
from dspark_calib.summary.details import Drafter, Proxy, SliceCell, Slices, TemperatureCurve, Transfer
from dspark_calib.summary.measures import (
    CalibrationChange,
    ConditionalMeasures,
    Group,
    Measures,
    PositionChange,
    PositionMeasures,
    ReliabilityBin,
    Sweep,
    ThresholdPoint,
)
from dspark_calib.summary.record import Finding, Model, Report, Source, TemperatureTuple, Verdict

BINS = 20


def around(value: float, se: float) -> Estimate:
    """A number with a symmetric 95 % interval."""
    return Estimate(value=value, se=se, low=value - 1.96 * se, high=value + 1.96 * se)


def reliability(position: int, n: int, overconfidence: float) -> tuple[ReliabilityBin, ...]:
    """Bins that lie `overconfidence · p(1-p)` under the diagonal; the last positions leave some empty."""
    weights = [math.exp(-((b - 19 + 2.4 * position) ** 2) / 60) for b in range(BINS)]
    rows = []
    for b, weight in enumerate(weights):
        count = int(n * weight / sum(weights))
        p = (b + 0.5) / BINS
        seen = UNDEFINED if count == 0 else around(p - overconfidence * p * (1 - p), 0.4 / math.sqrt(count))
        predicted = None if count == 0 else p
        rows.append(ReliabilityBin(low=b / BINS, high=(b + 1) / BINS, n=count, predicted=predicted, observed=seen))
    return tuple(rows)


def position_measures(position: int, n: int, ece: float, overconfidence: float) -> PositionMeasures:
    """All numbers of one position, filled in."""
    observed = 0.8**position
    return PositionMeasures(
        position=position,
        n=n,
        positives=int(n * observed),
        predicted_mean=observed + ece,
        observed_mean=observed,
        ece=around(ece, 0.004),
        ece_floor=0.012,
        ece_at_floor=ece < 0.015,
        ece_squared_debiased=ece**2 - 1e-5,
        smooth_ece=ece * 0.9,
        bias=around(ece if overconfidence > 0 else -ece, 0.005),
        auroc=around(0.8 + 0.01 * position + 0.004 * (overconfidence < 0.1), 0.006),
        auroc_conditional=around(0.78 - 0.01 * position, 0.01),
        brier=around(0.16 - 0.01 * position + ece / 4, 0.003),
        log_loss=around(0.5 - 0.02 * position, 0.01),
        corp=Decomposition(miscalibration=ece / 4, discrimination=0.08, uncertainty=observed * (1 - observed)),
        bins=reliability(position, n, overconfidence),
        conditional=ConditionalMeasures(
            n=int(n * observed) + 1,
            positives=int(n * observed * 0.8),
            predicted_mean=0.8 + ece,
            observed_mean=0.8,
            ece=around(ece, 0.004),
            ece_floor=0.012,
            ece_at_floor=ece < 0.015,
            ece_squared_debiased=ece**2 - 1e-5,
            smooth_ece=ece * 0.9,
            bias=around(ece, 0.005),
            brier=around(0.15 + ece / 4, 0.003),
            log_loss=around(0.45, 0.01),
            corp=Decomposition(miscalibration=ece / 4, discrimination=0.03, uncertainty=0.16),
            missing=None,
        ),
        missing=None,
    )


def missing_measures(position: int, n: int, why: str) -> PositionMeasures:
    """A position about which nothing can be said."""
    empty = tuple(
        ReliabilityBin(low=b / BINS, high=(b + 1) / BINS, n=0, predicted=None, observed=UNDEFINED) for b in range(BINS)
    )
    return PositionMeasures(
        position=position,
        n=n,
        positives=0,
        predicted_mean=None,
        observed_mean=None,
        ece=UNDEFINED,
        ece_floor=None,
        ece_at_floor=None,
        ece_squared_debiased=None,
        smooth_ece=None,
        bias=UNDEFINED,
        auroc=UNDEFINED,
        auroc_conditional=UNDEFINED,
        brier=UNDEFINED,
        log_loss=UNDEFINED,
        corp=None,
        bins=empty,
        conditional=ConditionalMeasures(
            n=0,
            positives=0,
            predicted_mean=None,
            observed_mean=None,
            ece=UNDEFINED,
            ece_floor=None,
            ece_at_floor=None,
            ece_squared_debiased=None,
            smooth_ece=None,
            bias=UNDEFINED,
            brier=UNDEFINED,
            log_loss=UNDEFINED,
            corp=None,
            missing=why,
        ),
        missing=why,
    )


def ece_of(measures: PositionMeasures) -> float:
    """The ECE, 0 where there is none."""
    return measures.ece.value or 0.0


def measures(gamma: int, n: int, ece: float, overconfidence: float) -> Measures:
    """Every position of one set of confidences."""
    rows = tuple(position_measures(k, n, ece / math.sqrt(k), overconfidence) for k in range(1, gamma + 1))
    mean = sum(row.ece.value or 0 for row in rows) / gamma
    return Measures(positions=rows, mean_ece=around(mean, 0.003), mean_ece_floor=0.012)


def acceptance(gamma: int, n: int, rate: float) -> Acceptance:
    """A drafter whose every draft is accepted with the same chance."""
    lengths = [int(n * rate**k * (1 - rate)) for k in range(gamma)] + [int(n * rate**gamma)]
    return Acceptance(
        prefix=tuple(around(rate**k, 0.01) for k in range(1, gamma + 1)),
        conditional=tuple(around(rate - 0.01 * k, 0.012) for k in range(1, gamma + 1)),
        judged=tuple(int(n * rate ** (k - 1)) for k in range(1, gamma + 1)),
        accepted_length=around(1 + sum(rate**k for k in range(1, gamma + 1)), 0.04),
        lengths=tuple(lengths),
    )


def sweep(rate: float) -> Sweep:
    """Thresholds 0 … 0.9: fewer tokens, a better rate."""

    def point(threshold: float, shift: float) -> ThresholdPoint:
        accepted = 1 + 3 * rate * (1 - (threshold + shift) ** 3 / 2)
        rejected = 3.5 * (1 - rate) * (1 - threshold) * 2
        return ThresholdPoint(
            threshold=threshold,
            accepted=accepted,
            rejected=rejected,
            acceptance_rate=accepted / (accepted + rejected),
        )

    thresholds = [i / 10 for i in range(10)]
    return Sweep(raw=tuple(point(t, 0) for t in thresholds), calibrated=tuple(point(t, 0.05) for t in thresholds))


def group(name: str, rounds: int, prompts: int, *, ece: float = 0.08, gamma: int = 7, rate: float = 0.7) -> Group:
    """One group with raw and calibrated numbers."""
    raw, calibrated = measures(gamma, rounds, ece, 0.5), measures(gamma, rounds, ece / 5, 0.05)
    changes = tuple(
        PositionChange(
            position=k + 1,
            ece=around(ece_of(new) - ece_of(old), 0.004),
            bias=around(-ece_of(old) / 2, 0.004),
            brier=around(-0.004, 0.001),
            auroc=around(0.001, 0.002),
        )
        for k, (old, new) in enumerate(zip(raw.positions, calibrated.positions, strict=True))
    )
    mean = (calibrated.mean_ece.value or 0) - (raw.mean_ece.value or 0)
    return Group(
        name=name,
        rounds=rounds,
        prompts=prompts,
        raw=raw,
        calibrated=calibrated,
        change=CalibrationChange(positions=changes, mean_ece=around(mean, 0.003)),
        acceptance=acceptance(gamma, rounds, rate),
        sweep=sweep(rate),
    )


def without_calibration(whole: Report) -> Report:
    """The same traffic before any fit."""
    groups = tuple(replace(g, calibrated=None, change=None) for g in whole.groups)
    outcome = Verdict(outcome="fit_needed", reasons=(), mean_ece_change=UNDEFINED, worst_position=1)
    return replace(
        whole,
        evaluation=None,
        temperatures=None,
        curves=(),
        baselines=(),
        transfer=None,
        groups=groups,
        verdict=outcome,
        throughput=(),
        advice=(),
    )


def source(gamma: int) -> Source:
    """A trace of the demo's pair."""
    return Source(
        gamma=gamma,
        target=Model(name="SmolLM2-135M-Instruct", content_hash="sha256:" + "a1" * 32),
        drafter=Model(name="smollm2-135m-dspark", content_hash="sha256:" + "b2" * 32),
        confidence_source="head",
        label_law="sampled",
        temperature=1.0,
        anchor_policy="loop",
        seed=0,
        content_hash="sha256:" + "c3" * 32,
        versions={"dspark-calib": "0.1.0", "torch": "2.13.0"},
        notes=(),
        clusters="prompts",
        domains=("chat", "code", "math"),
        datasets=("chat", "code", "math"),
    )


def temperatures(gamma: int) -> TemperatureTuple:
    """Temperatures a little over 1."""
    values = tuple(round(1.6 - 0.05 * k, 3) for k in range(gamma))
    return TemperatureTuple(
        values=values,
        intervals=tuple((t - 0.1, t + 0.12) for t in values),
        cross_fits=tuple((t - 0.2, t + 0.2) for t in values),
        flags=tuple(() if k < gamma - 1 else ("few_positives",) for k in range(gamma)),
        file="calibration.json",
        content_hash="sha256:" + "c3" * 32,
        rounds=12_000,
        selection="parsimonious",
        objective="ece",
        decision="adopt",
        reason="the held-out mean ECE falls at every assignment of folds",
    )


def curve(position: int, chosen: float) -> TemperatureCurve:
    """A parabola in log T with its minimum at the chosen temperature."""
    grid = tuple(2 ** (i / 8) for i in range(-24, 25))
    return TemperatureCurve(
        position=position,
        temperatures=grid,
        objective=tuple(0.01 + 0.05 * math.log(t / chosen) ** 2 for t in grid),
        chosen=chosen,
        interval=(chosen - 0.1, chosen + 0.12),
        flags=(),
    )


def slices() -> tuple[Slices, ...]:
    """Three quantities, a few cells each."""

    def cell(low: float, high: float, bias: float) -> SliceCell:
        return SliceCell(
            low=low,
            high=high,
            n=3000,
            prompts=80,
            predicted=0.5 + bias,
            observed=0.5,
            raw_bias=around(bias, 0.01),
            calibrated_bias=around(bias / 6, 0.01),
        )

    edges = {
        "confidence_1": (0.0, 0.25, 0.5, 0.75, 1.0),
        "prompt_length": (16, 64, 128, 512),
        "depth": (0, 32, 64, 128),
    }
    return tuple(
        Slices(
            quantity=quantity,  # type: ignore[arg-type]
            view="cumulative",
            cells=tuple(cell(lo, hi, 0.03 * (i + 1)) for i, (lo, hi) in enumerate(itertools.pairwise(e))),
        )
        for quantity, e in edges.items()
    )


def comparison() -> Comparison:
    """One thing got worse, one better, one stayed open."""

    def row(measure: str, position: int | None, old: float, new: float, change: str) -> ComparisonRow:
        return ComparisonRow(
            group="all",
            measure=measure,
            position=position,
            old=old,
            new=new,
            difference=around(new - old, 0.004),
            harm=around((new - old) / 0.004 * (-1 if measure in {"auroc", "accepted_length"} else 1), 1.0),
            change=change,  # type: ignore[arg-type]
        )

    rows = (
        row("ece", 3, 0.02, 0.05, "worse"),
        row("accepted_length", None, 3.1, 3.095, "unclear"),
        row("auroc", 1, 0.80, 0.83, "better"),
    )
    return Comparison(old="last week", paired=True, confidences="calibrated", rows=rows)


def throughput() -> tuple[Throughput, ...]:
    """Three confidences at four loads."""
    speed = {"raw": 0.93, "calibrated": 0.98, "oracle": 1.0}
    return tuple(
        Throughput(
            policy="algorithm1",
            confidences=kind,  # type: ignore[arg-type]
            concurrency=r,
            tokens_per_second=around(900 * r**0.6 * share, 20),
            per_user=around(900 * r**-0.4 * share, 2),
            accepted_length=around(3.2 * share, 0.04),
            predicted_length=3.4 if kind == "raw" else 3.2 * share,
            budget=4.5 - 0.4 * math.log2(r) / 2,
            regret=around(1 - share, 0.004) if kind != "oracle" else UNDEFINED,
        )
        for kind, share in speed.items()
        for r in (1, 8, 64, 256)
    )


def example_report(gamma: int = 7, names: tuple[str, ...] = ("chat", "code", "math")) -> Report:
    """A report with every section filled."""
    named = tuple(group(n, 4000, 60, ece=0.05 + 0.015 * (i % 5), gamma=gamma) for i, n in enumerate(names))
    whole = group("all", 12_000, 180, gamma=gamma)
    tuple_ = temperatures(gamma)
    return Report(
        source=source(gamma),
        evaluation="out_of_fold",
        verdict=Verdict(
            outcome="ship",
            reasons=(),
            mean_ece_change=whole.change.mean_ece if whole.change else UNDEFINED,
            worst_position=1,
        ),
        temperatures=tuple_,
        findings=(
            Finding(
                name="few_positives",
                severity="warning",
                count=41,
                message=f"position {gamma}: 41 accepted prefixes, fewer than the 50 a temperature needs; T stays at 1",
            ),
        ),
        groups=(whole, *named),
        slices=slices(),
        proxies=tuple(
            Proxy(name=n, rounds=12_000, auroc_conditional=tuple(around(a - 0.008 * k, 0.01) for k in range(gamma)))
            for n, a in (("draft_prob", 0.74), ("margin", 0.73), ("entropy", 0.71))
        ),
        curves=tuple(curve(k + 1, t) for k, t in enumerate(tuple_.values)),
        baselines=tuple(
            Baseline(name=n, temperatures=None, ece=(e,) * gamma, brier=(0.15,) * gamma)
            for n, e in (("identity", 0.06), ("sts", 0.012), ("global", 0.02), ("isotonic", 0.011))
        ),
        transfer=Transfer(
            fitted_on=names,
            judged_on=names,
            mean_ece=tuple(tuple(0.012 if a == b else 0.03 for b in names) for a in names),
        ),
        drafters=(
            Drafter(
                name="smollm2-135m-dspark", rounds=12_000, acceptance=acceptance(gamma, 12_000, 0.7), source="trace"
            ),
            Drafter(name="n-gram", rounds=9_000, acceptance=acceptance(gamma, 9_000, 0.45), source="trace"),
        ),
        comparison=comparison(),
        throughput=throughput(),
        advice=tuple(
            Advice(
                concurrency=r,
                policy="algorithm1",
                temperatures="calibrated",
                gamma=gamma,
                tokens_per_second=900 * r**0.6,
                calibration_gain=around(0.05, 0.01),
                reasons=("the temperatures raise throughput measurably", f"all {gamma} drafts earn their place"),
            )
            for r in (1, 8, 64, 256)
        ),
        bins=BINS,
        draws=1000,
        seed=0,
    )
