"""A gate for GitHub Actions: annotations on stdout, and a step summary in Markdown."""

import html
from pathlib import Path

from dspark_calib.decision.check import Check
from dspark_calib.decision.gate import Gate
from dspark_calib.decision.outcome import Outcome
from dspark_calib.errors import DsparkCalibError

MAX_ANNOTATIONS = 5  # GitHub shows 10 a step and silently drops the rest
MAX_SUMMARY_BYTES = 900_000  # GitHub refuses a step summary above 1 MiB, and with it all of it
_LEVELS = {Outcome.FAIL: "error", Outcome.INCONCLUSIVE: "warning"}
_SIGNS = {Outcome.PASS: "✅", Outcome.FAIL: "❌", Outcome.INCONCLUSIVE: "❔"}
_COLUMNS = ("", "condition", "group", "position", "value", "interval", "limit", "rounds", "why")
_HEAD = f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|\n"


def render_annotations(gate: Gate) -> str:
    """Return workflow commands: the worst few checks and a line with the total."""
    worst = gate.worst(MAX_ANNOTATIONS)
    lines = [_annotation(_LEVELS[gate.counted_as(check)], check.name, check.reason) for check in worst]
    return "".join(f"{line}\n" for line in (*lines, _annotation(_total_level(gate), "dspark-calib gate", _total(gate))))


def render_step_summary(gate: Gate, most_bytes: int = MAX_SUMMARY_BYTES) -> str:
    """Return the gate as Markdown of bounded size: what did not pass first, then the rest as far as it fits."""
    warnings = "".join(f"> {_cell(warning)}\n>\n" for warning in gate.warnings)
    head = (
        f"### {_SIGNS[gate.outcome]} dspark-calib gate: {gate.outcome.value}\n\n{_total(gate)}\n\n{warnings}\n{_HEAD}"
    )
    not_passed = gate.worst(len(gate.checks))
    rows = [_row(gate, check) for check in (*not_passed, *(c for c in gate.checks if c not in set(not_passed)))]
    used, shown = len(head.encode()), 0
    if used > most_bytes:
        return ""
    for row in rows:
        used += len(row.encode())
        if used > most_bytes - 100:  # room for the line that says what is left out
            break
        shown += 1
    left_out = f"\n{len(rows) - shown} more checks are left out here.\n" if shown < len(rows) else ""
    return head + "".join(rows[:shown]) + left_out


def append_step_summary(path: Path, gate: Gate) -> None:
    """Append the summary to the file that `GITHUB_STEP_SUMMARY` names, within what is left of its limit.

    Raises:
        DsparkCalibError: If the file cannot be written.
    """
    try:
        used = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(render_step_summary(gate, max(MAX_SUMMARY_BYTES - used, 0)))
    except OSError as error:
        raise DsparkCalibError(f"{path}: the step summary cannot be written ({error.strerror})") from error


def _annotation(level: str, title: str, message: str) -> str:
    return f"::{level} title={_property(title)}::{_message(message)}"


def _total_level(gate: Gate) -> str:
    return _LEVELS.get(gate.outcome, "notice")


def _total(gate: Gate) -> str:
    counts = ", ".join(f"{count} {outcome.value}" for outcome, count in gate.counts.items())
    return (
        f"{counts} of {len(gate.checks)} checks on {gate.rounds} rounds of {gate.prompts} prompts "
        f"({gate.view} confidences); outcome {gate.outcome.value}"
    )


def _message(text: str) -> str:
    """Escape the data of a workflow command (percent first, or escapes would be escaped)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def _row(gate: Gate, check: Check) -> str:
    value = "–" if check.value is None else f"{check.value:.4f}"
    interval = "–" if check.low is None or check.high is None else f"{check.low:.4f} … {check.high:.4f}"
    position = "–" if check.position is None else str(check.position)
    cells = (
        check.condition,
        check.group,
        position,
        value,
        interval,
        f"{check.limit:g}",
        str(check.rounds),
        check.reason,
    )
    return f"| {_SIGNS[gate.counted_as(check)]} | {' | '.join(_cell(cell) for cell in cells)} |\n"


def _cell(text: str) -> str:
    """Escape for a Markdown table cell: no HTML, no pipe, no line break, no markup out of a name."""
    one_line = " ".join(html.escape(text, quote=False).split())
    return "".join(f"\\{c}" if c in r"\|`*_[]!~#" else c for c in one_line if c.isprintable())
