"""Which temperatures, which policy, which γ: the choice a simulation supports, with its reasons."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dspark_calib.scheduling.confidence_source import CALIBRATED, ORACLE, RAW
from dspark_calib.scheduling.policy import Policy
from dspark_calib.scheduling.prompt_ratio import RatioChange
from dspark_calib.scheduling.replay import ReplayResult, find_replay, throughput_change


@dataclass(frozen=True, slots=True, kw_only=True)
class GammaOption:
    """The recommended policy on the first γ drafts of each block.

    Attributes:
        gamma: Drafts the policy sees.
        throughput: Tokens per second.
        change: Against the whole block, paired by prompt.
    """

    gamma: int
    throughput: float
    change: RatioChange

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"gamma": self.gamma, "throughput": self.throughput, "change": self.change.to_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What to run at one concurrency.

    Attributes:
        concurrency: R.
        policy: The lossless policy of highest throughput.
        temperatures: `raw` or `calibrated`.
        gamma: The fewest drafts a block whose throughput is within one standard error, paired, of the best block size.
        throughput: Tokens per second of the whole block.
        per_user_speed: Tokens per second of one request.
        calibration_gain: (calibrated - raw)/raw under this policy; None without a calibration, or where the policy
            looks at no confidence.
        gamma_options: What fewer drafts would give, from 1 up to the whole block.
        reasons: Sentences for the reader.
    """

    concurrency: int
    policy: str
    temperatures: str
    gamma: int
    throughput: float
    per_user_speed: float
    calibration_gain: RatioChange | None
    gamma_options: tuple[GammaOption, ...]
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "concurrency": self.concurrency,
            "policy": self.policy,
            "temperatures": self.temperatures,
            "gamma": self.gamma,
            "throughput": self.throughput,
            "per_user_speed": self.per_user_speed,
            "calibration_gain": None if self.calibration_gain is None else self.calibration_gain.to_dict(),
            "gamma_options": [option.to_dict() for option in self.gamma_options],
            "reasons": list(self.reasons),
        }


def choose_replay(
    replays: Sequence[ReplayResult], policies: Sequence[Policy], *, min_user_speed: float | None = None
) -> ReplayResult | None:
    """Return the deployable replay of highest throughput, None if no one qualifies.

    The oracle is no choice, nor is a policy that anticipates: it would change the sampled text. A policy that
    looks at no confidence counts as raw. Without a calibrated advantage raw wins the tie.

    Args:
        replays: What was run.
        policies: The policies behind them.
        min_user_speed: Tokens per second a user must get.
    """
    by_name = {policy.name: policy for policy in policies}
    candidates = [
        replay
        for replay in replays
        if replay.confidence != ORACLE
        and not by_name[replay.policy].anticipates
        and (by_name[replay.policy].uses_confidence or replay.confidence == RAW)
        and (min_user_speed is None or replay.per_user_speed >= min_user_speed)
    ]
    return max(candidates, key=lambda r: (r.throughput, r.confidence == RAW), default=None)


def recommend(
    chosen: ReplayResult,
    replays: Sequence[ReplayResult],
    run_capped: Callable[[int], ReplayResult],
    caps: Sequence[int],
    *,
    gamma: int,
    uses_confidence: bool,
) -> Recommendation:
    """Work out what a chosen replay means for temperatures and γ.

    Args:
        chosen: The replay to recommend.
        replays: All replays, for the comparison of raw and calibrated.
        run_capped: Replays the chosen policy on the first γ' drafts.
        caps: Values of γ' below γ to try, ascending; empty where the trace cannot be cut.
        gamma: Drafts in the trace's block.
        uses_confidence: Whether the chosen policy looks at confidences.
    """
    blocks = {cap: run_capped(cap) for cap in caps} | {gamma: chosen}
    fastest = max(blocks.values(), key=lambda replay: replay.throughput)
    enough = next(c for c, replay in blocks.items() if throughput_change(replay, fastest).within_one_standard_error)
    gain = _calibration_gain(chosen, replays) if uses_confidence else None
    return Recommendation(
        concurrency=chosen.concurrency,
        policy=chosen.policy,
        temperatures=chosen.confidence,
        gamma=enough,
        throughput=chosen.throughput,
        per_user_speed=chosen.per_user_speed,
        calibration_gain=gain,
        gamma_options=tuple(_option(replay, cap, chosen) for cap, replay in blocks.items()),
        reasons=(
            _temperature_reason(gain, uses_confidence=uses_confidence),
            _gamma_reason(enough, gamma, tried=bool(caps)),
        ),
    )


def _option(capped: ReplayResult, gamma: int, chosen: ReplayResult) -> GammaOption:
    return GammaOption(gamma=gamma, throughput=capped.throughput, change=throughput_change(capped, chosen))


def _calibration_gain(chosen: ReplayResult, replays: Sequence[ReplayResult]) -> RatioChange | None:
    raw, calibrated = (find_replay(replays, chosen.policy, c, chosen.concurrency) for c in (RAW, CALIBRATED))
    return None if raw is None or calibrated is None else throughput_change(calibrated, raw)


def _temperature_reason(gain: RatioChange | None, *, uses_confidence: bool) -> str:
    if not uses_confidence:
        return "this policy looks at no confidence, so temperatures change nothing"
    if gain is None:
        return "no calibration was given, so only raw confidences were tried"
    if gain.clearly_positive:
        return "the temperatures raise throughput measurably"
    if gain.clearly_negative:
        return "the temperatures lower throughput measurably; keep raw confidences here"
    return "the temperatures make no measurable difference to throughput here"


def _gamma_reason(enough: int, gamma: int, *, tried: bool) -> str:
    if not tried:
        return "fewer drafts were not tried: the trace holds only the rounds of full verification, or γ is 1"
    if enough == gamma:
        return f"all {gamma} drafts earn their place"
    return (
        f"the first {enough} of {gamma} drafts are within a standard error of the best size; drafting fewer costs "
        "less, but a block of another size is another drafter: collect again with it before relying on this"
    )
