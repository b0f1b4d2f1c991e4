"""A named finding of the checks on a trace."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dspark_calib.errors import FindingsNotAccepted

Severity = Literal["stop", "warning", "note"]

STOPPING = (
    "already_calibrated",
    "censored_rounds",
    "duplicate_rounds",
    "looks_like_probabilities",
    "mixed_laws",
    "prompt_under_two_ids",
    "responses_not_from_target",
    "wrong_row",
)
"""Names of the findings that stop a fit; a trace may bring others, from whoever made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something the checks noticed.

    Attributes:
        name: Word to accept it by, such as `wrong_row`.
        severity: `stop` keeps a fit from running until the finding is accepted by name.
        count: Rounds (or what the message says) that show it.
        message: What it is, and what to do.
        positions: Draft positions concerned, from 1; empty when all are.
    """

    name: str
    severity: Severity
    count: int
    message: str
    positions: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "name": self.name,
            "severity": self.severity,
            "count": self.count,
            "message": self.message,
            "positions": list(self.positions),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Finding":
        """Read the JSON object."""
        return cls(
            name=data["name"],
            severity=data["severity"],
            count=data["count"],
            message=data["message"],
            positions=tuple(data["positions"]),
        )


def require_accepted(findings: Sequence[Finding], accept: Collection[str]) -> None:
    """Refuse to go on while a stopping finding is not accepted by name.

    Args:
        findings: From `check_trace`.
        accept: Accepted names; `all` accepts every one.

    Raises:
        FindingsNotAccepted: Listing what was found and how to go on, or a name that no finding has.
    """
    for name in accept:
        if name not in {"all", *STOPPING, *(f.name for f in findings)}:
            raise FindingsNotAccepted(f"--accept {name}: no finding has that name; they are {', '.join(STOPPING)}")
    open_ones = [f for f in findings if f.severity == "stop" and f.name not in accept and "all" not in accept]
    if open_ones:
        what = "; ".join(f"{f.name}: {f.message}" for f in open_ones)
        names = ",".join(f.name for f in open_ones)
        raise FindingsNotAccepted(
            f"the trace has findings that stop a fit. {what}. To fit all the same: --accept {names}"
        )
