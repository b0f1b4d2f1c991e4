"""Shapes of what a report sets against something else: an older one, or schedulers against each other."""

from dataclasses import dataclass
from typing import Literal

from dspark_calib.metrics.estimate import Estimate

Change = Literal["worse", "better", "unclear"]


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
