"""Rounds as an engine logs them now: one JSON object a line, in a file that may still grow.

Two forms: `{"confidence_logits": [...], "accepted": 2, "observed": 7, "prompt_id": "r17"}`, where `observed`
defaults to γ and `prompt_id` to none, and DeepSpec's `{"logits": [...], "labels": [...]}`.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.readers.numbers import as_count, as_float32, as_number
from dspark_calib.trace.readers.untrusted import MAX_LINE_BYTES, parse_json
from dspark_calib.trace.readers.wording import shown, shown_names

POLL_SECONDS = 1.0
_MAX_GAMMA = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRound:
    """One round of a stream.

    Attributes:
        where: File and line, for messages.
        prompt_id: What its rounds share, or None.
        logits: Raw confidence logits, float32 [γ].
        accepted: Drafts accepted.
        observed: Positions with a known label.
    """

    where: str
    prompt_id: str | None
    logits: npt.NDArray[np.float32]
    accepted: int
    observed: int


def iter_live_rounds(lines: Iterable[str], name: str) -> Iterator[LiveRound]:
    """Parse lines as they come; blank ones are skipped.

    Raises:
        TraceFormatError: At a line that is no round, naming it.
    """
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield parse_live_round(line, f"{name}, line {number}")


def parse_live_round(line: str, where: str) -> LiveRound:
    """Parse one line.

    Raises:
        TraceFormatError: If it is no round in either form.
    """
    value = parse_json(line, where)
    if isinstance(value, dict) and isinstance(value.get("confidence_logits"), list):
        logits = _logits(value["confidence_logits"], where)
        observed = as_count(value.get("observed", len(logits)), f"{where}, observed", len(logits))
        accepted = as_count(value.get("accepted"), f"{where}, accepted", observed)
    elif isinstance(value, dict) and isinstance(value.get("logits"), list):
        logits = _logits(value["logits"], where)
        accepted, observed = _accepted(value.get("labels"), len(logits), where), len(logits)
    else:
        raise TraceFormatError(f"{where}: expected confidence_logits and accepted, found {shown_names(value)}")
    prompt = value.get("prompt_id")
    if not isinstance(prompt, str | None):
        raise TraceFormatError(f"{where}, prompt_id: expected text, found {shown(prompt)}")
    return LiveRound(where=where, prompt_id=prompt, logits=logits, accepted=accepted, observed=observed)


def wait_for_more() -> bool:
    """Sleep a moment; the file may grow for ever."""
    time.sleep(POLL_SECONDS)
    return True


def follow_lines(path: Path, wait: Callable[[], bool] = wait_for_more) -> Iterator[str]:
    """Yield the lines of a file, and those appended later.

    Args:
        path: The file; a last line without its end is held back until it is complete.
        wait: Called at the end of the file; False ends the reading. Sleeps by default, for ever.

    Raises:
        TraceFormatError: If the file cannot be read, shrinks, or a line does not end.
    """
    try:
        with path.open("rb") as file:
            pending = b""
            while True:
                piece = file.readline(MAX_LINE_BYTES)
                pending += piece
                if len(pending) > MAX_LINE_BYTES:
                    raise TraceFormatError(f"{path}: a line longer than {MAX_LINE_BYTES} bytes; is it another format?")
                if pending.endswith(b"\n"):
                    yield pending.decode("utf-8", errors="replace")
                    pending = b""
                elif not piece:
                    if path.stat().st_size < file.tell():
                        raise TraceFormatError(f"{path}: the file shrank while it was followed; was it rotated?")
                    if not wait():
                        return
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror})") from error


def _logits(values: list[Any], where: str) -> npt.NDArray[np.float32]:
    if not 0 < len(values) <= _MAX_GAMMA:
        raise TraceFormatError(f"{where}: {len(values)} logits in one block")
    logits = as_float32([as_number(z, f"{where}, logits") for z in values])
    if not np.isfinite(logits).all():
        raise TraceFormatError(f"{where}: a confidence logit is not finite")
    return logits


def _accepted(labels: Any, gamma: int, where: str) -> int:
    if not isinstance(labels, list) or len(labels) != gamma or any(label not in (0, 1) for label in labels):
        raise TraceFormatError(f"{where}, labels: expected {gamma} values of 0 or 1")
    accepted = labels.index(0) if 0 in labels else gamma
    if any(labels[accepted:]):
        raise TraceFormatError(f"{where}, labels: a 1 follows a 0, so these are no prefix labels")
    return accepted
