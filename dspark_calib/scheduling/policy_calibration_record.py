"""The record of a fit for the policy that will run; see `policy_calibration` for how."""

from dataclasses import dataclass
from typing import Any

from dspark_calib.calibration.fitting.fit_record import TemperatureFit
from dspark_calib.scheduling.prompt_ratio import RatioChange
from dspark_calib.scheduling.replay import ReplayResult, throughput_change

Temperatures = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedPass:
    """One pass: temperatures, and the replay of the policy under them.

    Attributes:
        fit: On all prompts of the rounds visited in the pass before.
        by_fold: Temperatures fitted without each fold of prompts; these drive the replay.
        rounds_fitted: Rounds fitted on.
        rows_visited: Rounds that the first request of each response visits under the policy.
        ece_raw: ECE per position of raw confidences on the rounds visited; None without a label.
        ece_of_loop_fit: Out-of-fold ECE of the first pass's temperatures on the same rounds.
        ece: Out-of-fold ECE of this pass's temperatures on the same rounds.
        replay: What the policy amounts to under these temperatures.
    """

    fit: TemperatureFit
    by_fold: tuple[Temperatures, ...]
    rounds_fitted: int
    rows_visited: int
    ece_raw: tuple[float | None, ...]
    ece_of_loop_fit: tuple[float | None, ...]
    ece: tuple[float | None, ...]
    replay: ReplayResult

    @property
    def temperatures(self) -> Temperatures:
        """Fitted on all prompts, length γ."""
        return self.fit.temperatures

    @property
    def intervals(self) -> tuple[tuple[float, float] | None, ...]:
        """95 % interval of each T_k, None where nothing was fitted."""
        return tuple(position.interval for position in self.fit.positions)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "temperatures": list(self.temperatures),
            "intervals": [None if ends is None else list(ends) for ends in self.intervals],
            "by_fold": [list(t) for t in self.by_fold],
            "rounds_fitted": self.rounds_fitted,
            "rows_visited": self.rows_visited,
            "ece_raw": list(self.ece_raw),
            "ece_of_loop_fit": list(self.ece_of_loop_fit),
            "ece": list(self.ece),
            "replay": self.replay.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedPosition:
    """One position before and after fitting for the policy.

    Attributes:
        position: k, from 1.
        loop_temperature: Fitted on the rounds of full verification.
        policy_temperature: Fitted on the rounds the policy visits.
        clearly_shifted: Whether the second lies outside the 95 % interval of the first.
        eces: On the rounds the policy visits: raw, with the first, with the second temperatures (out of fold).
    """

    position: int
    loop_temperature: float
    policy_temperature: float
    clearly_shifted: bool
    eces: tuple[float | None, float | None, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCalibration:
    """How far temperatures move when they are fitted for the rounds a policy visits.

    Attributes:
        policy: Its name.
        concurrency: R.
        passes: The first is fitted on the rounds of full verification.
        outcome: `fixed_point` (the temperatures stayed), `within_noise` (each moved inside the 95 % interval of the
            pass before: which rounds are visited is a matter of chance, so a smaller step means nothing), or
            `still_moving` after the last pass.
        seed: Of folds, replicates and drawing order.
    """

    policy: str
    concurrency: int
    passes: tuple[FittedPass, ...]
    outcome: str
    seed: int

    @property
    def temperatures(self) -> Temperatures:
        """The temperatures to ship for this policy."""
        return self.passes[-1].temperatures

    @property
    def shift(self) -> tuple[float, ...]:
        """T of the last pass minus T of the first, per position."""
        first, last = self.passes[0].temperatures, self.temperatures
        return tuple(b - a for a, b in zip(first, last, strict=True))

    @property
    def clearly_shifted(self) -> tuple[bool, ...]:
        """Whether the last T lies outside the 95 % interval of the first fit, per position."""
        pairs = zip(self.temperatures, self.passes[0].intervals, strict=True)
        return tuple(ends is not None and not ends[0] <= t <= ends[1] for t, ends in pairs)

    @property
    def throughput_change(self) -> RatioChange:
        """(last - first)/first of the throughput, paired by prompt: whether it matters in tokens per second."""
        return throughput_change(self.passes[-1].replay, self.passes[0].replay)

    def positions(self) -> list[ShiftedPosition]:
        """Return what changed position by position."""
        first, last = self.passes[0], self.passes[-1]
        return [
            ShiftedPosition(
                position=k + 1,
                loop_temperature=first.temperatures[k],
                policy_temperature=last.temperatures[k],
                clearly_shifted=self.clearly_shifted[k],
                eces=(last.ece_raw[k], last.ece_of_loop_fit[k], last.ece[k]),
            )
            for k in range(len(last.temperatures))
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "policy": self.policy,
            "concurrency": self.concurrency,
            "outcome": self.outcome,
            "temperatures": list(self.temperatures),
            "shift": list(self.shift),
            "clearly_shifted": list(self.clearly_shifted),
            "throughput_change": self.throughput_change.to_dict(),
            "evaluation": "out_of_fold",
            "passes": [fitted.to_dict() for fitted in self.passes],
        }
