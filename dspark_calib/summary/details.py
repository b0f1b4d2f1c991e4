"""Shapes of the report's finer views: slices, proxies, temperature curves, transfer, drafters side by side."""

from dataclasses import dataclass
from typing import Literal

from dspark_calib.metrics.acceptance import Acceptance
from dspark_calib.metrics.estimate import Estimate


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
