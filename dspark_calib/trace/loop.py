"""The rounds a decoding loop would visit, found in a trace that holds every anchor."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.rounds import UNKNOWN_ANCHOR, Rounds
from dspark_calib.trace.store import Trace


def trajectory_starts(rounds: Rounds) -> npt.NDArray[np.int64]:
    """Return the row where each trajectory (dataset, prompt, replicate) begins, for rows in trace order."""
    keys = (rounds.dataset.codes, rounds.prompt_id.codes, rounds.replicate)
    changed = np.any([k[1:] != k[:-1] for k in keys], axis=0)
    return np.concatenate([[0], np.flatnonzero(changed) + 1]) if len(rounds) else np.empty(0, np.int64)


def visited_rows(rounds: Rounds) -> npt.NDArray[np.int64]:
    """Return the rows a loop visits: from the first response token, t → t + accepted + 1.

    Args:
        rounds: Every anchor of every response, in trace order (prompt, replicate, anchor).

    Returns:
        Row numbers, ascending, int64.

    Raises:
        TraceFormatError: If a trajectory does not hold every anchor from its prompt's end on.
    """
    starts = trajectory_starts(rounds)
    ends = np.append(starts[1:], len(rounds))
    _check_every_anchor(rounds, starts)
    visited: list[int] = []
    accepted = rounds.accepted.tolist()
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        row = start
        while row < end:
            visited.append(row)
            row += accepted[row] + 1
    return np.array(visited, dtype=np.int64)


def loop_trace(trace: Trace) -> Trace:
    """Return the loop rounds of a trace collected with `--anchors all`, one trajectory a replicate; no model runs.

    Raises:
        TraceFormatError: If the trace was not collected with `all`, or anchors are missing.
    """
    if trace.provenance.anchor_policy != "all":
        raise TraceFormatError(
            f"{trace.name} has anchor policy {trace.provenance.anchor_policy!r}; "
            "loop rounds can be extracted only from a trace collected with --anchors all"
        )
    rounds = trace.read()
    return Trace.of(rounds.take(visited_rows(rounds)), replace(trace.provenance, anchor_policy="loop"), trace.name)


def _check_every_anchor(rounds: Rounds, starts: npt.NDArray[np.int64]) -> None:
    if (rounds.anchor == UNKNOWN_ANCHOR).any():
        raise TraceFormatError("anchor: unknown anchors; loop rounds need a trace that knows where each block stands")
    offset = np.arange(len(rounds)) - np.repeat(starts, np.diff(np.append(starts, len(rounds))))
    broken = rounds.anchor != rounds.prompt_length + offset
    if broken.any():
        row = int(np.argmax(broken))
        raise TraceFormatError(
            f"row {row}, anchor = {rounds.anchor[row]}: expected {rounds.prompt_length[row] + offset[row]}; "
            "the trace does not hold every anchor of every response in order"
        )
