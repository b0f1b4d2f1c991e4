"""The three outcomes of a decision, and how several become one."""

from collections.abc import Iterable
from enum import StrEnum


class Outcome(StrEnum):
    """What an interval says about a limit."""

    PASS = "pass"  # noqa: S105 - an outcome, no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


EXIT_CODES = {Outcome.PASS: 0, Outcome.FAIL: 1, Outcome.INCONCLUSIVE: 3}


def combine_outcomes(outcomes: Iterable[Outcome]) -> Outcome:
    """Return fail if any failed, else inconclusive if any is open, else pass; nothing at all is inconclusive.

    >>> combine_outcomes([Outcome.PASS, Outcome.INCONCLUSIVE]).value
    'inconclusive'
    """
    found = set(outcomes)
    for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE):
        if outcome in found:
            return outcome
    return Outcome.PASS if found else Outcome.INCONCLUSIVE
