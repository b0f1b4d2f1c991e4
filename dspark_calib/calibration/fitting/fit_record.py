"""What a fit of temperatures found, position by position; see `sts` for how."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dspark_calib.metrics.rows.scored_rows import View

Objective = Literal["ece", "brier", "nll"]
Grid = Literal["default", "sglang", "deepspec"]
Selection = Literal["parsimonious", "paper"]
Flag = Literal["kept_at_identity", "single_class", "few_positives", "at_grid_edge", "unidentified", "no_rounds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionFit:
    """The temperature of one position and how sure it is.

    Attributes:
        position: k, from 1.
        temperature: T_k shipped.
        best_temperature: The bare minimum of the objective; equal to `temperature` under `paper`.
        interval: 95 % interval of T_k given the fitted T_<k, clustered; None where nothing was fitted.
        objective_before: Objective at T_k = 1, earlier positions as fitted (with the grid of another fitter: at 1 too,
            as that fitter reports it); None without rounds.
        objective_after: Objective at T_k; in sample.
        flags: What a reader should know (DESIGN.md, "The calibration file").
        n: Rounds with a label.
        positives: Those with label 1.
        curve: Pairs (T, objective), in sample, increasing in T.
    """

    position: int
    temperature: float
    best_temperature: float
    interval: tuple[float, float] | None
    objective_before: float | None
    objective_after: float | None
    flags: tuple[str, ...]
    n: int
    positives: int
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def curve_temperatures(self) -> tuple[float, ...]:
        """Temperatures of the curve."""
        return tuple(t for t, _ in self.curve)

    @property
    def curve_objective(self) -> tuple[float, ...]:
        """Objective at them."""
        return tuple(v for _, v in self.curve)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "position": self.position,
            "temperature": self.temperature,
            "best_temperature": self.best_temperature,
            "interval": None if self.interval is None else list(self.interval),
            "objective_before": self.objective_before,
            "objective_after": self.objective_after,
            "flags": list(self.flags),
            "n": self.n,
            "positives": self.positives,
            "curve": [list(point) for point in self.curve],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PositionFit":
        """Read the JSON object."""
        body = dict(data)
        interval = body.pop("interval")
        curve = tuple((float(t), float(v)) for t, v in body.pop("curve"))
        flags = tuple(body.pop("flags"))
        return cls(**body, interval=None if interval is None else (interval[0], interval[1]), flags=flags, curve=curve)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperatureFit:
    """A sequential fit.

    Attributes:
        positions: One fit a position.
        objective: What was minimised.
        grid: Where.
        select: How the temperature was chosen among good ones.
        joint: Whether a joint refinement followed the sequential pass.
        view: `cumulative`, or `conditional` where a scheduler cut rounds.
    """

    positions: tuple[PositionFit, ...]
    objective: Objective
    grid: Grid
    select: Selection
    joint: bool = False
    view: View = "cumulative"

    @property
    def temperatures(self) -> tuple[float, ...]:
        """T_k by position."""
        return tuple(p.temperature for p in self.positions)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "objective": self.objective,
            "grid": self.grid,
            "select": self.select,
            "joint": self.joint,
            "view": self.view,
            "positions": [p.to_dict() for p in self.positions],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "TemperatureFit":
        """Read the JSON object."""
        body = dict(data)
        return cls(positions=tuple(PositionFit.from_dict(p) for p in body.pop("positions")), **body)
