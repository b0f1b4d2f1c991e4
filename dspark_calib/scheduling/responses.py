"""A trace as a table of responses to be replayed: for any anchor, what comes of verifying ℓ drafts there.

Every anchor of every response is in a trace collected with `--anchors all`, so a round cut to ℓ drafts moves on
to an anchor that is there too: the response's tokens are the target's own, whatever was verified.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import TraceFormatError
from dspark_calib.scheduling.policy import Integers
from dspark_calib.trace import PromptClusters, Rounds, Trace, visited_rows
from dspark_calib.trace.loop import trajectory_starts
from dspark_calib.trace.rounds import UNKNOWN_ANCHOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Responses:
    """The trajectories of a trace, in the order in which requests draw them.

    Attributes:
        rounds: Rows in trace order, n of them.
        every_anchor: Whether every anchor is there; otherwise only those of a loop that verified everything.
        start: First row of each response, int64 [responses]; replicate 0 of every prompt comes first.
        end: One past its last row, int64 [responses].
        prompt: Prompt cluster of each row, int32 [n].
        prompts: Number of prompt clusters.
        accepted: Accepted drafts when all γ are verified, int64 [n].
        tokens_left: Tokens of the response after each anchor, int64 [n].
    """

    rounds: Rounds
    every_anchor: bool
    start: Integers
    end: Integers
    prompt: npt.NDArray[np.int32]
    prompts: int
    accepted: Integers
    tokens_left: Integers

    @property
    def gamma(self) -> int:
        """Drafts in a block."""
        return self.rounds.gamma

    @property
    def count(self) -> int:
        """Number of responses."""
        return len(self.start)


def responses_of(trace: Trace) -> Responses:
    """Index a trace for replay.

    Raises:
        InsufficientData: If the trace is empty.
        TraceFormatError: If rounds were cut, carry calibrated confidences, or anchors are unknown or missing.
    """
    if trace.provenance.calibration_applied is not None:
        raise TraceFormatError(
            f"{trace.name}: its confidences were calibrated before they were logged; replay needs raw logits"
        )
    rounds = trace.read(("acceptance_probs",))
    if (rounds.anchor == UNKNOWN_ANCHOR).any():
        raise TraceFormatError(
            f"{trace.name}, row {int(np.argmax(rounds.anchor == UNKNOWN_ANCHOR))}, anchor: unknown; replay needs to "
            "know where each block stands in its response"
        )
    cut = rounds.verified < rounds.gamma
    if cut.any():
        row = int(np.argmax(cut))
        raise TraceFormatError(
            f"{trace.name}, row {row}, verified = {rounds.verified[row]}: replay needs the outcome of all "
            f"{rounds.gamma} drafts; collect with full verification, and from a drafter that always fills its block"
        )
    every_anchor = trace.provenance.anchor_policy == "all"
    if every_anchor:
        visited_rows(rounds)  # refuses a trace with holes
    return _index(rounds, every_anchor=every_anchor)


def _index(rounds: Rounds, *, every_anchor: bool) -> Responses:
    start = trajectory_starts(rounds).astype(np.int64)
    end = np.append(start[1:], len(rounds))
    order = np.argsort(rounds.replicate[start], kind="stable")
    clusters = PromptClusters()
    prompt = clusters.assign(rounds)
    left = rounds.prompt_length.astype(np.int64) + rounds.response_length - 1 - rounds.anchor
    return Responses(
        rounds=rounds,
        every_anchor=every_anchor,
        start=start[order],
        end=end[order],
        prompt=prompt,
        prompts=len(clusters.keys),
        accepted=rounds.accepted.astype(np.int64),
        tokens_left=left,
    )
