"""One condition at one position of one group, and what came of it."""

from dataclasses import dataclass
from typing import Any

from dspark_calib.decision.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check.

    Attributes:
        condition: The option that asked for it, such as `max-ece`.
        group: `all`, or the name of a domain or data set.
        position: Draft position from 1, or None for measures of the whole block.
        limit: What was asked for.
        value: The estimate, or None where it is undefined.
        low: Lower end of the interval the decision rests on, or None.
        high: Upper end.
        rounds: Rounds behind the estimate.
        outcome: What the interval says.
        undefined: Whether there was nothing to judge; such a check never passes.
        reason: One sentence for a person.
        rounds_needed: Rounds of the group that would decide if the estimate stays, or None.
        smallest_detectable: The regression these prompts show with 90 % probability, or None.
        plug_in: The ECE as a report shows it, where `value` is the ECE without its noise floor; else None.
    """

    condition: str
    group: str
    position: int | None
    limit: float
    value: float | None
    low: float | None
    high: float | None
    rounds: int
    outcome: Outcome
    undefined: bool
    reason: str
    rounds_needed: int | None = None
    smallest_detectable: float | None = None
    plug_in: float | None = None

    @property
    def name(self) -> str:
        """Where the check was made, such as `max-ece, code, position 2`."""
        place = f"position {self.position}" if self.position is not None else "whole block"
        return f"{self.condition}, {self.group}, {place}"

    @property
    def excess(self) -> float:
        """How far the estimate lies on the wrong side of the limit; infinite where it is undefined."""
        if self.value is None:
            return float("inf")
        above = self.value - self.limit
        return -above if self.condition.startswith("min-") else above

    def to_dict(self) -> dict[str, Any]:
        """Return the check as JSON values."""
        interval = None if self.low is None or self.high is None else [self.low, self.high]
        return {
            "condition": self.condition,
            "group": self.group,
            "position": self.position,
            "limit": self.limit,
            "value": self.value,
            "plug_in": self.plug_in,
            "interval": interval,
            "rounds": self.rounds,
            "outcome": self.outcome.value,
            "undefined": self.undefined,
            "reason": self.reason,
            "rounds_needed": self.rounds_needed,
            "smallest_detectable": self.smallest_detectable,
        }
