"""What a replay amounts to: accepted tokens, budget, throughput and per-user speed, with intervals by prompt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_calib.scheduling.confidence_source import Confidences
from dspark_calib.scheduling.curve import SpsCurve
from dspark_calib.scheduling.policy import Floats, Policy
from dspark_calib.scheduling.prompt_ratio import Interval, RatioChange, compare_ratios, ratio_interval
from dspark_calib.scheduling.responses import Responses
from dspark_calib.scheduling.visits import Visits, visit_rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSums:
    """Sums over the rounds of each prompt; every rate of a replay is a ratio of two of them.

    Attributes:
        rounds: Rounds (one request in one step), float64 [prompts].
        verified: Drafts verified, float64 [prompts].
        accepted: Verified drafts accepted, float64 [prompts].
        predicted: Σ a_k over the verified drafts whose outcome is known, float64 [prompts].
        tokens: Tokens added to responses, float64 [prompts].
        seconds: Step time times rounds: the time users waited, float64 [prompts].
    """

    rounds: Floats
    verified: Floats
    accepted: Floats
    predicted: Floats
    tokens: Floats
    seconds: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """One policy under one confidence source at one concurrency.

    Attributes:
        policy: Name with parameters, as `--policy` takes it.
        confidence: `raw`, `calibrated` or `oracle`.
        concurrency: R, requests in every step.
        steps: Verification steps.
        step_seconds: Time of all steps.
        oversized_steps: Steps with more tokens than the curve's largest batch, run as several.
        passes: Times the responses were gone through, the last maybe in part.
        sums: Counts and sums by prompt.
    """

    policy: str
    confidence: str
    concurrency: int
    steps: int
    step_seconds: float
    oversized_steps: int
    passes: int
    sums: PromptSums

    @property
    def rounds(self) -> int:
        """Rounds replayed, steps · R."""
        return self.steps * self.concurrency

    @property
    def prompts(self) -> int:
        """Prompt clusters that were served."""
        return int(np.count_nonzero(self.sums.rounds))

    @property
    def budget_per_request(self) -> float:
        """Mean query tokens of a request in a step: 1 + verified drafts."""
        return 1.0 + float(self.sums.verified.sum()) / self.rounds

    @property
    def predicted_accepted_length(self) -> float:
        """Predicted τ: 1 + mean Σ a_k over the verified drafts whose outcome is known."""
        return 1.0 + float(self.sums.predicted.sum()) / self.rounds

    @property
    def realised_accepted_length(self) -> float:
        """Realised τ over the same drafts: 1 + mean accepted."""
        return 1.0 + float(self.sums.accepted.sum()) / self.rounds

    @property
    def tokens_per_round(self) -> float:
        """Mean tokens added to a response by a round; below τ where responses end."""
        return float(self.sums.tokens.sum()) / self.rounds

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens that a step adds to all responses together."""
        return float(self.sums.tokens.sum()) / self.steps

    @property
    def throughput(self) -> float:
        """Tokens per second of all R requests together."""
        return float(self.sums.tokens.sum()) / self.step_seconds

    @property
    def per_user_speed(self) -> float:
        """Tokens per second of one request."""
        return self.throughput / self.concurrency

    @property
    def throughput_interval(self) -> Interval | None:
        """95 % interval of the throughput, clustered by prompt; None with fewer than two prompts."""
        interval = ratio_interval(self.sums.tokens, self.sums.seconds)
        return None if interval is None else interval.scaled(self.concurrency)

    @property
    def per_user_speed_interval(self) -> Interval | None:
        """95 % interval of the per-user speed, clustered by prompt."""
        return ratio_interval(self.sums.tokens, self.sums.seconds)

    @property
    def realised_accepted_length_interval(self) -> Interval | None:
        """95 % interval of the realised τ, clustered by prompt."""
        return ratio_interval(self.sums.rounds + self.sums.accepted, self.sums.rounds)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object: counts, rates and intervals, without the sums of each prompt."""
        return {
            "policy": self.policy,
            "confidence": self.confidence,
            "concurrency": self.concurrency,
            "steps": self.steps,
            "rounds": self.rounds,
            "prompts": self.prompts,
            "passes": self.passes,
            "oversized_steps": self.oversized_steps,
            "step_seconds": self.step_seconds,
            "budget_per_request": self.budget_per_request,
            "predicted_accepted_length": self.predicted_accepted_length,
            "realised_accepted_length": self.realised_accepted_length,
            "realised_accepted_length_interval": _ends(self.realised_accepted_length_interval),
            "tokens_per_round": self.tokens_per_round,
            "tokens_per_step": self.tokens_per_step,
            "throughput": self.throughput,
            "throughput_interval": _ends(self.throughput_interval),
            "per_user_speed": self.per_user_speed,
            "per_user_speed_interval": _ends(self.per_user_speed_interval),
        }


def _ends(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def compute_replay(
    responses: Responses,
    confidences: Confidences,
    visits: Visits,
    *,
    policy: str,
    seconds: Floats,
    max_tokens: int,
) -> ReplayResult:
    """Count a finished closed loop.

    Predictions and outcomes are compared on the same drafts: those verified whose outcome the trace knows. A draft
    after an accepted end of the response, or past a token limit, has none.

    Args:
        responses: What was replayed.
        confidences: What the policy believed.
        visits: The rounds of the loop.
        policy: Its name.
        seconds: Time of a step by its tokens, float64, at least R·(1 + γ) + 1 entries.
        max_tokens: Largest batch of one step on the curve.
    """
    steps, concurrency = visits.row.shape
    batch = concurrency + visits.verified.sum(axis=1)
    step_seconds = seconds[batch]
    row, verified = visits.row.ravel(), visits.verified.ravel()
    taken = np.minimum(responses.accepted[row], verified)
    known = np.minimum(verified, responses.rounds.observed[row])
    columns: dict[str, npt.NDArray[Any]] = {
        "rounds": np.ones(len(row)),
        "verified": verified,
        "accepted": taken,
        "predicted": _predicted(confidences, row, known),
        "tokens": np.minimum(taken + 1, responses.tokens_left[row]),
        "seconds": np.repeat(step_seconds, concurrency),
    }
    prompt = responses.prompt[row]
    sums = {name: _by_prompt(prompt, column, responses.prompts) for name, column in columns.items()}
    return ReplayResult(
        policy=policy,
        confidence=confidences.source,
        concurrency=concurrency,
        steps=steps,
        step_seconds=float(step_seconds.sum()),
        oversized_steps=int(np.count_nonzero(batch > max_tokens)),
        passes=visits.passes,
        sums=PromptSums(**sums),
    )


def _by_prompt(prompt: npt.NDArray[np.int32], column: npt.NDArray[Any], prompts: int) -> Floats:
    return np.asarray(np.bincount(prompt, weights=column, minlength=prompts), dtype=np.float64)


def _predicted(confidences: Confidences, row: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> Floats:
    """Return Σ_{k≤known} a_k of each visited row, float64 [visits]."""
    total = np.zeros((len(confidences.survival), confidences.survival.shape[1] + 1))
    np.cumsum(confidences.survival, axis=1, out=total[:, 1:])
    return np.asarray(total[row, known], dtype=np.float64)


def find_replay(replays: Sequence[ReplayResult], policy: str, confidence: str, concurrency: int) -> ReplayResult | None:
    """Return the replay of one cell, None if it is not among them."""
    wanted = (policy, confidence, concurrency)
    return next((r for r in replays if (r.policy, r.confidence, r.concurrency) == wanted), None)


def throughput_change(first: ReplayResult, second: ReplayResult) -> RatioChange:
    """Return (first - second)/second of the throughput, paired by prompt; both at the same concurrency."""
    return compare_ratios(
        (first.sums.tokens, first.sums.seconds),
        (second.sums.tokens, second.sums.seconds),
    )


def replay_policy(
    responses: Responses,
    confidences: Confidences,
    policy: Policy,
    curve: SpsCurve,
    *,
    concurrency: int,
    requests: int | None = None,
    seed: int = 0,
) -> ReplayResult:
    """Run the closed loop once and count it.

    Args:
        responses: What can be drawn.
        confidences: What the policy believes.
        policy: Decides the verified drafts.
        curve: Speeds of the target.
        concurrency: R.
        requests: Requests to finish; None finishes every response once, and at least 2·R.
        seed: Of the order of later passes.

    Raises:
        CurveError: If R is beyond the curve.
    """
    curve.check_concurrency(concurrency)
    largest = concurrency * (1 + responses.gamma)
    visits = visit_rounds(
        responses,
        confidences,
        policy,
        speeds=curve.speeds_by_tokens(largest),
        concurrency=concurrency,
        requests=max(responses.count, 2 * concurrency) if requests is None else requests,
        seed=seed,
    )
    return compute_replay(
        responses,
        confidences,
        visits,
        policy=policy.name,
        seconds=curve.seconds_by_tokens(largest),
        max_tokens=curve.max_tokens,
    )
