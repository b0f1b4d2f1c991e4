"""Questions a gate asks: one condition at one position of one group, with the estimate that answers it."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dspark_calib.calibration import Evaluation, GroupScores
from dspark_calib.decision.baseline import Baseline, BaselineGroup, View, scores_in_view
from dspark_calib.decision.estimate_at_limit import Measured, level_with_floor
from dspark_calib.metrics import Estimate, PositionScores, Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and the estimate.

    Attributes:
        condition: Option name.
        group: Name of the group.
        position: From 1, or None for the whole block.
        limit: As given.
        rounds: Rounds behind the estimate.
        group_rounds: Rounds of the group.
        measured: The estimate, or None where it is undefined.
        missing: Why it is undefined.
        plug_in: The ECE as a report shows it, where the estimate is the ECE without its floor.
    """

    condition: str
    group: str
    position: int | None
    limit: float
    rounds: int
    group_rounds: int
    measured: Measured | None
    missing: str = ""
    plug_in: float | None = None

    @property
    def turned_limit(self) -> float:
        """The limit in the direction in which larger is worse."""
        return -self.limit if self.measured is not None and self.measured.flipped else self.limit


def ask(
    evaluation: Evaluation, asked: Mapping[str, float], view: View, baseline: Baseline | None
) -> tuple[Question, ...]:
    """Return every question: conditions × groups × positions."""
    questions: list[Question] = []
    for group in evaluation.groups:
        for condition, limit in asked.items():
            if condition == "min-accepted-length":
                questions.append(_length_question(group, limit))
            elif condition == "max-regression":
                known = baseline.groups.get(group.name) if baseline is not None else None
                paired = baseline is not None and baseline.seed == evaluation.seed
                questions += _regressions(group, view, limit, known, paired=paired)
            else:
                questions += _position_questions(group, view, condition, limit)
    return tuple(questions)


def _length_question(group: GroupScores, limit: float) -> Question:
    length = group.acceptance.accepted_length
    return Question(
        condition="min-accepted-length",
        group=group.name,
        position=None,
        limit=limit,
        rounds=group.rounds,
        group_rounds=group.rounds,
        measured=_from_estimate(length, flipped=True),
        missing="the accepted length is undefined",
    )


def _position_questions(group: GroupScores, view: View, condition: str, limit: float) -> Iterator[Question]:
    scores = scores_in_view(group, view)
    if scores is None:  # asked all the same, so that a group without scores cannot slip through
        for position in group.raw.cumulative:
            yield _position_question(group, condition, limit, position, None, f"no {view} scores")
        return
    for index, position in enumerate(scores.cumulative):
        measured = (
            _brier_increase(group, index) if condition == "max-brier-increase" else _MEASURES[condition](position)
        )
        yield _position_question(group, condition, limit, position, measured, position.missing or "one prompt")


def _position_question(
    group: GroupScores, condition: str, limit: float, position: PositionScores, measured: Measured | None, missing: str
) -> Question:
    return Question(
        condition=condition,
        group=group.name,
        position=position.position,
        limit=limit,
        rounds=position.n,
        group_rounds=group.rounds,
        measured=measured,
        missing=missing,
        plug_in=position.ece.value if condition == "max-ece" else None,
    )


def _ece(position: PositionScores) -> Measured | None:
    value, se, floor = position.ece.value, position.ece.se, position.ece_floor
    if value is None or se is None or floor is None:
        return None
    return Measured(value=value, se=se, floor=floor)


def _auroc(position: PositionScores) -> Measured | None:
    return _from_estimate(position.auroc, flipped=True)


def _bias(position: PositionScores) -> Measured | None:
    if position.bias.value is None or position.bias.se is None:
        return None
    return Measured(value=abs(position.bias.value), se=position.bias.se, floor=0.0)


_MEASURES: dict[str, Callable[[PositionScores], Measured | None]] = {
    "max-ece": _ece,
    "min-auroc": _auroc,
    "max-bias": _bias,
}


def _brier_increase(group: GroupScores, index: int) -> Measured | None:
    return None if group.change is None else _from_estimate(group.change.brier[index], flipped=False)


def _from_estimate(estimate: Estimate, *, flipped: bool) -> Measured | None:
    if estimate.value is None or estimate.se is None or not math.isfinite(estimate.value + estimate.se):
        return None
    return Measured(value=-estimate.value if flipped else estimate.value, se=estimate.se, flipped=flipped)


def _regressions(
    group: GroupScores, view: View, limit: float, known: BaselineGroup | None, *, paired: bool
) -> Iterator[Question]:
    scores = scores_in_view(group, view)
    positions = () if scores is None else scores.cumulative
    before = () if known is None else known.positions
    for index in range(max(len(positions), len(before))):
        if scores is None or index >= len(positions):
            yield _missing_position(group, limit, index + 1)
            continue
        measured = _increase(scores, known, index, paired=paired)
        missing = positions[index].missing or f"the baseline has no {view} ECE of this group and position"
        yield _position_question(group, "max-regression", limit, positions[index], measured, missing)


def _missing_position(group: GroupScores, limit: float, position: int) -> Question:
    return Question(
        condition="max-regression",
        group=group.name,
        position=position,
        limit=limit,
        rounds=0,
        group_rounds=group.rounds,
        measured=None,
        missing="the baseline has this position, the trace has not",
    )


def _increase(scores: Scores, known: BaselineGroup | None, index: int, *, paired: bool) -> Measured | None:
    """Return new minus old ECE, both at the noise floor of the old one."""
    position = scores.cumulative[index]
    old = known.positions[index] if known is not None and index < len(known.positions) else None
    if old is None or position.ece.value is None or position.ece.se is None or position.ece_floor is None:
        return None
    value = level_with_floor(position.ece.value, position.ece_floor, old.floor) - old.value
    draws = known.draws if known is not None and paired else None
    if draws is not None and len(draws) == len(scores.draws.ece):
        se = float(np.nanstd(scores.draws.ece[:, index] - draws[:, index]))
    else:
        se = math.hypot(position.ece.se, old.se)
    return Measured(value=value, se=se)
