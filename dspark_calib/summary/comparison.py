"""NEW against OLD: differences of every measure in both, what got worse first.

Where OLD is a trace, its bootstrap draws are those of NEW on shared prompts (weights depend on seed, prompt
and draw alone), so the difference of draws is paired. Acceptance and AUROC have no draws, nor has a report's
JSON: there standard errors add up in squares, which is too careful where prompts are shared.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration import Evaluation, GroupScores
from dspark_calib.errors import TraceFormatError
from dspark_calib.metrics import Scores
from dspark_calib.metrics.estimate import UNDEFINED, Estimate, normal_estimate
from dspark_calib.summary.contrasts import Change, Comparison, ComparisonRow
from dspark_calib.summary.record import SCHEMA

Floats = npt.NDArray[np.float64]
Confidences = Literal["raw", "calibrated"]
Key = tuple[str, str, int | None]

LESS_IS_BETTER = ("ece", "bias", "brier", "mean_ece")
BY_POSITION = ("ece", "bias", "brier", "auroc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One number of one side; `draws` are its bootstrap replicates, shape [R], where there are any."""

    estimate: Estimate
    draws: Floats | None = None


def evaluation_side(evaluation: Evaluation, confidences: Confidences) -> dict[Key, Measured]:
    """Return the numbers of an evaluation, by group, measure and position; a domain "all" yields to the whole."""
    groups = reversed(evaluation.groups)
    return {key: value for group in groups for key, value in _group_side(group, confidences)}


def json_side(report: Mapping[str, Any], confidences: Confidences, where: str) -> dict[Key, Measured]:
    """Return the numbers of an earlier `report --json`.

    Raises:
        TraceFormatError: If it is no report of this schema.
    """
    if report.get("schema") != SCHEMA:
        raise TraceFormatError(f"{where}: its schema is {report.get('schema')!r}, this version compares {SCHEMA!r}")
    try:
        return {key: value for group in reversed(report["groups"]) for key, value in _json_group(group, confidences)}
    except (KeyError, TypeError, IndexError) as error:
        raise TraceFormatError(f"{where}: not a complete report ({error!r}); write it again") from error


def compute_comparison(
    new: dict[Key, Measured], old: dict[Key, Measured], *, name: str, confidences: Confidences
) -> Comparison:
    """Compare every number that both sides have.

    `harm` is the difference in standard errors with the sign that makes positive worse; the intervals of
    single rows are not corrected for their number.

    Args:
        new: Numbers of NEW.
        old: Numbers of OLD.
        name: What the report calls OLD.
        confidences: Which confidences both sides are about.
    """
    told_twice = _single_group(new) & _single_group(old)  # a group that is everything on both sides: "all" says it
    keys = [key for key in new if key in old and key[0] not in told_twice]
    rows = [_row(key, new[key], old[key]) for key in keys if _defined(new[key], old[key])]
    paired = any(value.draws is not None for value in old.values())
    ordered = sorted(rows, key=lambda row: -(row.harm.value if row.harm.value is not None else -math.inf))
    return Comparison(old=name, paired=paired, confidences=confidences, rows=tuple(ordered))


def _single_group(side: Mapping[Key, Measured]) -> set[str]:
    """Return the name of the only group beside "all"; nothing where there are several."""
    names = {group for group, _, _ in side} - {"all"}
    return names if len(names) == 1 else set()


def _group_side(group: GroupScores, confidences: Confidences) -> Iterator[tuple[Key, Measured]]:
    scores = group.raw if confidences == "raw" else group.calibrated
    if scores is None:
        return
    yield (group.name, "mean_ece", None), Measured(estimate=scores.mean_ece, draws=scores.draws.mean_ece)
    yield (group.name, "accepted_length", None), Measured(estimate=group.acceptance.accepted_length)
    for k, row in enumerate(scores.cumulative):
        for measure in BY_POSITION:
            yield (group.name, measure, row.position), _measured(scores, k, measure)
    for k, rate in enumerate(group.acceptance.conditional, start=1):
        yield (group.name, "conditional_acceptance", k), Measured(estimate=rate)


def _measured(scores: Scores, k: int, measure: str) -> Measured:
    row = scores.cumulative[k]
    if measure == "auroc":
        return Measured(estimate=row.auroc)
    draws = {"ece": scores.draws.ece, "bias": scores.draws.bias, "brier": scores.draws.brier}[measure][:, k]
    estimate = {"ece": row.ece, "bias": row.bias, "brier": row.brier}[measure]
    return (
        Measured(estimate=_size(estimate), draws=np.abs(draws))
        if measure == "bias"
        else Measured(estimate=estimate, draws=draws)
    )


def _json_group(group: Mapping[str, Any], confidences: Confidences) -> Iterator[tuple[Key, Measured]]:
    measures, name = group[confidences], group["name"]
    if measures is None:
        return
    acceptance = group["acceptance"]
    yield (name, "mean_ece", None), _from_json(measures, "mean_ece")
    yield (name, "accepted_length", None), _from_json(acceptance, "accepted_length")
    for row in measures["positions"]:
        for measure in BY_POSITION:
            value = _from_json(row, measure)
            sized = Measured(estimate=_size(value.estimate)) if measure == "bias" else value
            yield (name, measure, row["position"]), sized
    rates = zip(acceptance["conditional"], acceptance["conditional_se"], strict=True)
    for k, (value, se) in enumerate(rates, start=1):
        yield (name, "conditional_acceptance", k), Measured(estimate=normal_estimate(value, se))


def _from_json(values: Mapping[str, Any], key: str) -> Measured:
    return Measured(estimate=normal_estimate(values[key], values[f"{key}_se"]))


def _size(bias: Estimate) -> Estimate:
    return UNDEFINED if bias.value is None else Estimate(value=abs(bias.value), se=bias.se)


def _defined(new: Measured, old: Measured) -> bool:
    return new.estimate.value is not None and old.estimate.value is not None


def _row(key: Key, new: Measured, old: Measured) -> ComparisonRow:
    group, measure, position = key
    a, b = new.estimate.value or 0.0, old.estimate.value or 0.0
    se = _standard_error(new, old)
    sign = 1.0 if measure in LESS_IS_BETTER else -1.0
    harm = normal_estimate(sign * (a - b) / se, 1.0) if se else UNDEFINED
    return ComparisonRow(
        group=group,
        measure=measure,
        position=position,
        old=b,
        new=a,
        difference=normal_estimate(a - b, se),
        harm=harm,
        change=_reading(harm),
    )


def _standard_error(new: Measured, old: Measured) -> float | None:
    if new.draws is not None and old.draws is not None and len(new.draws) == len(old.draws):
        difference = new.draws - old.draws
        usable = difference[np.isfinite(difference)]
        return float(np.std(usable)) if len(usable) > 1 else None
    if new.estimate.se is None or old.estimate.se is None:
        return None
    return math.hypot(new.estimate.se, old.estimate.se)


def _reading(harm: Estimate) -> Change:
    if harm.low is not None and harm.low > 0:
        return "worse"
    return "better" if harm.high is not None and harm.high < 0 else "unclear"
