"""Policies against confidence sources against concurrencies: the record behind `simulate` and the report's curves."""

from dataclasses import dataclass
from typing import Any

from dspark_calib.scheduling.confidence_source import ORACLE
from dspark_calib.scheduling.curve import SpsCurve
from dspark_calib.scheduling.policy_calibration_record import PolicyCalibration
from dspark_calib.scheduling.prompt_ratio import RatioChange
from dspark_calib.scheduling.recommendation import Recommendation
from dspark_calib.scheduling.replay import ReplayResult, find_replay, throughput_change

SCHEMA = "dspark-calib/simulation/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What a confidence source loses against the oracle under the same policy and load.

    Attributes:
        policy: Name of the policy.
        confidence: `raw` or `calibrated`.
        concurrency: R.
        loss: (oracle - source)/oracle of the throughput, paired by prompt.
    """

    policy: str
    confidence: str
    concurrency: int
    loss: RatioChange

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        cell = {"policy": self.policy, "confidence": self.confidence, "concurrency": self.concurrency}
        return cell | self.loss.to_dict()


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Every replay of one trace on one curve, and what follows from them.

    Attributes:
        trace: Name of the trace.
        evaluation: How the calibrated confidences relate to the trace: `out_of_fold`, `independent`, `in_sample`;
            None without a calibration.
        curve: Speeds of the target.
        replays: One a policy, confidence source and concurrency.
        min_user_speed: Tokens per second a user must get, None without such a bound.
        recommendations: The best lossless choice at each concurrency.
        best_under_sla: The fastest choice that keeps `min_user_speed`; None if none does, or none is asked.
        warnings: What the reader must know.
        policy_calibrations: Temperatures fitted for the rounds of the recommended policies, where asked for.
    """

    trace: str
    evaluation: str | None
    curve: SpsCurve
    replays: tuple[ReplayResult, ...]
    min_user_speed: float | None
    recommendations: tuple[Recommendation, ...]
    best_under_sla: Recommendation | None
    warnings: tuple[str, ...]
    policy_calibrations: tuple[PolicyCalibration, ...] = ()

    def find(self, policy: str, confidence: str, concurrency: int) -> ReplayResult | None:
        """Return one replay, None if it was not run."""
        return find_replay(self.replays, policy, confidence, concurrency)

    @property
    def concurrencies(self) -> tuple[int, ...]:
        """R values in the order they were replayed."""
        return tuple(dict.fromkeys(replay.concurrency for replay in self.replays))

    def regret_of(self, replay: ReplayResult) -> Regret | None:
        """Return what a replay loses against the oracle under the same policy; None for the oracle, or without one."""
        oracle = self.find(replay.policy, ORACLE, replay.concurrency)
        if replay.confidence == ORACLE or oracle is None:
            return None
        return Regret(
            policy=replay.policy,
            confidence=replay.confidence,
            concurrency=replay.concurrency,
            loss=throughput_change(replay, oracle).negated(),
        )

    @property
    def regrets(self) -> tuple[Regret, ...]:
        """Loss of raw and calibrated confidences against the oracle, where there is one."""
        return tuple(regret for replay in self.replays if (regret := self.regret_of(replay)) is not None)

    def on_pareto_front(self, replay: ReplayResult) -> bool:
        """Whether no other replay of the same confidence source is faster for users and in total alike."""
        rivals = [r for r in self.replays if r.confidence == replay.confidence]
        return not any(_dominates(rival, replay) for rival in rivals)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of `simulate --format json`."""
        return {
            "schema": SCHEMA,
            "trace": self.trace,
            "evaluation": self.evaluation,
            "curve": {
                "tokens": self.curve.tokens.tolist(),
                "steps_per_second": self.curve.steps_per_second.tolist(),
                "lookup": self.curve.lookup,
                "max_tokens": self.curve.max_tokens,
            },
            "min_user_speed": self.min_user_speed,
            "replays": [r.to_dict() | {"on_pareto_front": self.on_pareto_front(r)} for r in self.replays],
            "regrets": [regret.to_dict() for regret in self.regrets],
            "recommendations": [r.to_dict() for r in self.recommendations],
            "best_under_sla": None if self.best_under_sla is None else self.best_under_sla.to_dict(),
            "policy_calibrations": [fitted.to_dict() for fitted in self.policy_calibrations],
            "warnings": list(self.warnings),
        }


def _dominates(rival: ReplayResult, replay: ReplayResult) -> bool:
    a, b = (rival.throughput, rival.per_user_speed), (replay.throughput, replay.per_user_speed)
    return a[0] >= b[0] and a[1] >= b[1] and a != b
