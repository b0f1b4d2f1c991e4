"""Records that stand beside a fit: cross-fitting, held-out measures, baselines, transfer between groups."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dspark_calib.metrics.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossFit:
    """Temperatures fitted without each fold of prompts, for several assignments of folds.

    Attributes:
        seeds: One a repeat; with the prompt's name it gives its fold (`trace.assign_folds`).
        folds: Number of folds.
        temperatures: By repeat, fold left out and position.
        ece_after: Held-out ECE by repeat and position, None where undefined.
        rounds: Rounds each repeat was fitted and judged on.
    """

    seeds: tuple[int, ...]
    folds: int
    temperatures: tuple[tuple[tuple[float, ...], ...], ...]
    ece_after: tuple[tuple[float | None, ...], ...]
    rounds: int

    def spread(self, position: int) -> tuple[float, float]:
        """Return the smallest and largest T of a position (from 1) over all repeats and folds."""
        values = [fold[position - 1] for repeat in self.temperatures for fold in repeat]
        return min(values), max(values)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "seeds": list(self.seeds),
            "folds": self.folds,
            "temperatures": [[list(fold) for fold in repeat] for repeat in self.temperatures],
            "ece_after": [list(repeat) for repeat in self.ece_after],
            "rounds": self.rounds,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "CrossFit":
        """Read the JSON object."""
        return cls(
            seeds=tuple(data["seeds"]),
            folds=data["folds"],
            temperatures=tuple(tuple(tuple(f) for f in repeat) for repeat in data["temperatures"]),
            ece_after=tuple(tuple(repeat) for repeat in data["ece_after"]),
            rounds=data["rounds"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Measures per position before and after, over the same rounds.

    Attributes:
        evaluation: `out_of_fold` or `in_sample`.
        ece_before: Raw ECE.
        ece_after: Under temperatures fitted without the prompt (in sample where `evaluation` says so).
        ece_change: After minus before, paired.
        mean_ece_change: The same for the mean over positions.
        ece_floor: Mean ECE of a perfectly calibrated drafter with these rounds and prompts.
        at_floor: Whether the ECE after cannot be told from perfect calibration.
        brier_before: Raw Brier score.
        brier_after: Calibrated.
        auroc_before: Raw AUROC.
        auroc_after: Calibrated; it can move at positions beyond the first.
    """

    evaluation: str
    ece_before: tuple[Estimate, ...]
    ece_after: tuple[Estimate, ...]
    ece_change: tuple[Estimate, ...]
    mean_ece_change: Estimate
    ece_floor: tuple[float | None, ...]
    at_floor: tuple[bool | None, ...]
    brier_before: tuple[Estimate, ...]
    brier_after: tuple[Estimate, ...]
    auroc_before: tuple[Estimate, ...]
    auroc_after: tuple[Estimate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        body: dict[str, Any] = {"evaluation": self.evaluation}
        for name in _ESTIMATES:
            body[name] = [_estimate_dict(e) for e in getattr(self, name)]
        body["mean_ece_change"] = _estimate_dict(self.mean_ece_change)
        return body | {"ece_floor": list(self.ece_floor), "at_floor": list(self.at_floor)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "HeldOut":
        """Read the JSON object."""
        estimates = {name: tuple(Estimate(**e) for e in data[name]) for name in _ESTIMATES}
        return cls(
            evaluation=data["evaluation"],
            mean_ece_change=Estimate(**data["mean_ece_change"]),
            ece_floor=tuple(data["ece_floor"]),
            at_floor=tuple(data["at_floor"]),
            **estimates,
        )


_ESTIMATES = (
    "ece_before",
    "ece_after",
    "ece_change",
    "brier_before",
    "brier_after",
    "auroc_before",
    "auroc_after",
)


def _estimate_dict(estimate: Estimate) -> dict[str, float | None]:
    return {"value": estimate.value, "se": estimate.se, "low": estimate.low, "high": estimate.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What another way of fitting reaches on the same held-out prompts.

    Attributes:
        name: `identity`, `sts`, `global`, `independent`, `platt`, `isotonic`, `constant`.
        temperatures: Fitted on all prompts, or None for a method without temperatures.
        ece: Held-out ECE per position, None where undefined.
        brier: Held-out Brier score per position.
    """

    name: str
    temperatures: tuple[float, ...] | None
    ece: tuple[float | None, ...]
    brier: tuple[float | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "name": self.name,
            "temperatures": None if self.temperatures is None else list(self.temperatures),
            "ece": list(self.ece),
            "brier": list(self.brier),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Baseline":
        """Read the JSON object."""
        temperatures = data["temperatures"]
        return cls(
            name=data["name"],
            temperatures=None if temperatures is None else tuple(temperatures),
            ece=tuple(data["ece"]),
            brier=tuple(data["brier"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Mean ECE on the group of the column under temperatures fitted on the group of the row.

    Attributes:
        groups: Names of rows and columns.
        mean_ece: Held out by prompt on the diagonal; None where undefined.
    """

    groups: tuple[str, ...]
    mean_ece: tuple[tuple[float | None, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"groups": list(self.groups), "mean_ece": [list(row) for row in self.mean_ece]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Transfer":
        """Read the JSON object."""
        return cls(groups=tuple(data["groups"]), mean_ece=tuple(tuple(row) for row in data["mean_ece"]))
