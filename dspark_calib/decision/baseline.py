"""The ECE of an earlier state, to hold a new one against: from its trace, or from its report JSON."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration import Evaluation, GroupScores
from dspark_calib.errors import ConfigError
from dspark_calib.metrics import Scores

View = Literal["raw", "calibrated"]
_SCHEMA = "dspark-calib/report/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineEce:
    """Plug-in ECE at one position, with its clustered standard error and its noise floor."""

    value: float
    se: float
    floor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineGroup:
    """One group of the baseline.

    Attributes:
        positions: Length γ of the baseline; None where the ECE is undefined.
        draws: Bootstrap replicates of the ECE, shape [R, γ], which pair with those of the new trace; None for
            a report.
    """

    positions: tuple[BaselineEce | None, ...]
    draws: npt.NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """An earlier state, group by group.

    Attributes:
        name: The file or folder it was read from.
        groups: By name.
        seed: Of the bootstrap, to know whether draws pair; None for a report.
    """

    name: str
    groups: Mapping[str, BaselineGroup]
    seed: int | None = None


def scores_in_view(group: GroupScores, view: View) -> Scores | None:
    """Return the raw or the calibrated scores of a group."""
    return group.raw if view == "raw" else group.calibrated


def baseline_from_evaluation(evaluation: Evaluation, view: View, name: str) -> Baseline:
    """Take the baseline from an evaluation of its trace, with draws that pair by prompt."""
    groups = {}
    for group in evaluation.groups:
        scores = scores_in_view(group, view)
        if scores is not None:
            positions = tuple(_ece(p.ece.value, p.ece.se, p.ece_floor) for p in scores.cumulative)
            groups[group.name] = BaselineGroup(positions=positions, draws=scores.draws.ece)
    return Baseline(name=name, groups=groups, seed=evaluation.seed)


def read_baseline_report(path: Path, view: View) -> Baseline:
    """Take the baseline from a `report.json` (keys `ece`, `ece_se`, `ece_floor` of each position).

    Raises:
        ConfigError: If the file is no such report.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not readable as a report JSON ({error})") from error
    if not isinstance(report, dict) or report.get("schema") != _SCHEMA:
        raise ConfigError(f"{path}: not a report of schema {_SCHEMA}; write one with `dspark-calib report --json`")
    groups = report.get("groups")
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise ConfigError(f"{path}, groups: expected a list of objects")
    return Baseline(name=str(path), groups={str(g.get("name")): _report_group(g, view, path) for g in groups})


def _report_group(group: Mapping[str, Any], view: View, path: Path) -> BaselineGroup:
    scores = group.get(view)
    positions = scores.get("positions") if isinstance(scores, dict) else []
    if not isinstance(positions, list) or not all(isinstance(p, dict) for p in positions):
        raise ConfigError(f"{path}, {view}.positions: expected a list of objects")
    found = (_ece(*(_number(p.get(key)) for key in ("ece", "ece_se", "ece_floor"))) for p in positions)
    return BaselineGroup(positions=tuple(found))


def _ece(value: float | None, se: float | None, floor: float | None) -> BaselineEce | None:
    if value is None or se is None or floor is None:
        return None
    return BaselineEce(value=value, se=se, floor=floor)


def _number(value: object) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1
    return float(value) if usable else None  # type: ignore[arg-type]
