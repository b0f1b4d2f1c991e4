"""Acceptance counts per position, for sources that count but log no rounds: `acceptance.json`.

They say how long blocks are accepted, nothing about confidences: `report` shows them beside traces and
`fit-sts` refuses them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.readers.imported import RowAccount
from dspark_calib.trace.readers.numbers import as_count
from dspark_calib.trace.readers.untrusted import read_json
from dspark_calib.trace.readers.wording import shown
from dspark_calib.trace.store import write_json

SCHEMA = "dspark-calib/acceptance/1"
FILE_NAME = "acceptance.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceCounts:
    """How many blocks were accepted up to each position.

    Attributes:
        source: The command that made them, such as `import vllm-metrics`.
        rounds: Blocks drafted.
        verified: Blocks in which position k was verified, length γ.
        accepted: Blocks whose first k drafts were accepted, length γ.
        account: Log lines or series read, kept and refused.
        notes: Sentences for the reader of a report.
    """

    source: str
    rounds: int
    verified: tuple[int, ...]
    accepted: tuple[int, ...]
    account: RowAccount
    notes: tuple[str, ...] = ()

    @property
    def gamma(self) -> int:
        """Drafts in a block."""
        return len(self.accepted)

    @property
    def prefix(self) -> tuple[float | None, ...]:
        """Prefix acceptance per position; None where nothing was verified."""
        return tuple(a / v if v else None for a, v in zip(self.accepted, self.verified, strict=True))

    @property
    def conditional(self) -> tuple[float | None, ...]:
        """Acceptance of draft k given its prefix; None where some block's window ended before k, or none got there."""
        before = (self.rounds, *self.accepted[:-1])
        whole = (b if v == self.rounds else 0 for b, v in zip(before, self.verified, strict=True))
        return tuple(a / b if b else None for a, b in zip(self.accepted, whole, strict=True))

    @property
    def accepted_length(self) -> float | None:
        """Tokens a block: drafts accepted and the bonus token."""
        return 1.0 + sum(self.accepted) / self.rounds if self.rounds else None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of `acceptance.json`; positions are 1-based."""
        positions = [
            {"position": k, "verified": v, "accepted": a}
            for k, (v, a) in enumerate(zip(self.verified, self.accepted, strict=True), start=1)
        ]
        return {
            "schema": SCHEMA,
            "source": self.source,
            "rounds": self.rounds,
            "positions": positions,
            "read": self.account.read,
            "kept": self.account.kept,
            "refused": dict(self.account.refused),
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str) -> "AcceptanceCounts":
        """Read the JSON object of `acceptance.json`.

        Raises:
            TraceFormatError: If the schema is another or a count is missing or impossible.
        """
        if data.get("schema") != SCHEMA:
            raise TraceFormatError(f"{where}, schema = {shown(data.get('schema'))}: this version reads {SCHEMA!r}")
        positions = data.get("positions")
        if not isinstance(positions, list) or not all(isinstance(p, dict) for p in positions) or not positions:
            raise TraceFormatError(f"{where}, positions: expected a list of objects")
        refused = data.get("refused")
        counts = cls(
            source=str(data.get("source")),
            rounds=as_count(data.get("rounds"), f"{where}, rounds", 2**62),
            verified=tuple(as_count(p.get("verified"), f"{where}, verified", 2**62) for p in positions),
            accepted=tuple(as_count(p.get("accepted"), f"{where}, accepted", 2**62) for p in positions),
            account=RowAccount(
                read=as_count(data.get("read"), f"{where}, read"),
                kept=as_count(data.get("kept"), f"{where}, kept"),
                refused=tuple((str(k), as_count(v, f"{where}, refused")) for k, v in refused.items())
                if isinstance(refused, dict)
                else (),
            ),
            notes=tuple(str(n) for n in data.get("notes") or []),
        )
        return check_counts(counts, where)


def check_counts(counts: AcceptanceCounts, where: str) -> AcceptanceCounts:
    """Return the counts unchanged if they can be those of prefixes.

    Raises:
        TraceFormatError: If accepted grows along the block, or exceeds what was verified.
    """
    for k, (a, v) in enumerate(zip(counts.accepted, counts.verified, strict=True), start=1):
        longest = counts.accepted[k - 2] if k > 1 else counts.rounds
        if a > longest or a > v or v > counts.rounds:
            raise TraceFormatError(
                f"{where}, position {k}: {a} accepted of {v} verified, after {longest} accepted before it; "
                "these are no prefix counts"
            )
    return counts


def write_acceptance(path: Path, counts: AcceptanceCounts) -> None:
    """Write `acceptance.json` under a temporary name, then rename it."""
    write_json(path, counts.to_dict())


def read_acceptance(path: Path) -> AcceptanceCounts:
    """Read `acceptance.json`.

    Raises:
        TraceFormatError: If it is not readable or no acceptance counts.
    """
    data = read_json(path)
    if not isinstance(data, dict):
        raise TraceFormatError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return AcceptanceCounts.from_dict(data, str(path))
