"""From a question and the level it is tested at to a check with its outcome and reason."""

import math

from dspark_calib.decision.check import Check
from dspark_calib.decision.estimate_at_limit import ALPHA, Measured, smallest_detectable
from dspark_calib.decision.outcome import Outcome
from dspark_calib.decision.question import Question

BLIND_ABOVE = 0.05  # a gate that could not have seen the ECE grow by this much does not pass --max-regression


def judge(question: Question, level: float) -> Check:
    """Return the check.

    It fails if the lower end of the interval, at the level that multiplicity leaves, lies above the limit, and
    passes if the upper end lies below it. A regression also passes if none was shown although one of 0.05 would
    have been, with 90 % probability: no interval around a difference of nothing lies below zero.
    """
    if question.measured is None:
        return _undefined(question)
    measured, limit = question.measured, question.turned_limit
    regression = question.condition == "max-regression"
    detectable = smallest_detectable(measured.se, level) if regression else None
    if measured.low(level) > limit:
        outcome, reason = Outcome.FAIL, f"the whole interval lies on the wrong side of {question.limit:g}"
    elif measured.high(ALPHA) < limit:
        outcome, reason = Outcome.PASS, f"the whole interval lies on the right side of {question.limit:g}"
    elif detectable is not None and detectable <= BLIND_ABOVE:
        outcome, reason = Outcome.PASS, f"no regression shown; one of {detectable:.3f} would have been seen"
    else:
        outcome, reason = Outcome.INCONCLUSIVE, ""
    needed = _rounds_needed(question, measured, level, detectable) if outcome is Outcome.INCONCLUSIVE else None
    low, high = measured.interval(level, ALPHA)
    return Check(
        condition=question.condition,
        group=question.group,
        position=question.position,
        limit=question.limit,
        value=-measured.estimate if measured.flipped else measured.estimate,
        low=low,
        high=high,
        rounds=question.rounds,
        outcome=outcome,
        undefined=False,
        reason=reason or _open_reason(question, needed, detectable),
        rounds_needed=needed,
        smallest_detectable=detectable,
        plug_in=question.plug_in,
    )


def _undefined(question: Question) -> Check:
    return Check(
        condition=question.condition,
        group=question.group,
        position=question.position,
        limit=question.limit,
        value=None,
        low=None,
        high=None,
        rounds=question.rounds,
        outcome=Outcome.INCONCLUSIVE,
        undefined=True,
        reason=f"undefined here ({question.missing}), so it cannot pass",
    )


def _rounds_needed(question: Question, measured: Measured, level: float, detectable: float | None) -> int | None:
    if detectable is not None:
        return math.ceil(question.group_rounds * (detectable / BLIND_ABOVE) ** 2)
    factor = measured.data_factor(question.turned_limit, level if measured.estimate > question.turned_limit else ALPHA)
    return None if factor is None else math.ceil(question.group_rounds * factor)


def _open_reason(question: Question, needed: int | None, detectable: float | None) -> str:
    if detectable is not None:
        return f"none shown, but only one of {detectable:.3f} would have been seen; about {needed} rounds would do"
    if needed is None:
        return f"the estimate lies on the limit {question.limit:g}: no number of rounds would decide"
    return f"{question.limit:g} lies inside the interval; about {needed} rounds like these would decide"
