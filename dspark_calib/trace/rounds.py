"""Rounds: the rows of a trace, column by column. No files here (see `store`)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import IncompatibleTraces, TraceFormatError
from dspark_calib.trace.labels import Labels, concat_labels

LABEL_COLUMNS = ("dataset", "domain", "prompt_id", "ending")
SCALAR_COLUMNS = {
    "replicate": np.int16,
    "prompt_length": np.int32,
    "response_length": np.int32,
    "anchor": np.int32,
    "accepted": np.int16,
    "observed": np.int16,
    "verified": np.int16,
}
REQUIRED_BLOCK_COLUMNS = {"confidence_logits": np.float32}
OPTIONAL_BLOCK_COLUMNS = {
    "draft_tokens": np.int32,
    "draft_logprobs": np.float32,
    "draft_margin": np.float32,
    "draft_entropy": np.float32,
    "acceptance_probs": np.float32,
}
BLOCK_COLUMNS = REQUIRED_BLOCK_COLUMNS | OPTIONAL_BLOCK_COLUMNS
ENDINGS = ("eos", "length", "unknown")
UNKNOWN_ANCHOR = -1
NO_DRAFT_LOGIT = -1e4
"""Confidence logit of a position whose block has no draft there: finite, and no scheduler would verify it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """n rounds, one draft block each; a structure of arrays with the column names of the trace.

    Attributes:
        dataset: Evaluation set.
        domain: math, code, chat or the user's word.
        prompt_id: Unique within its dataset; the cluster of every interval and split. Null for imports without one.
        ending: How the response ended: eos, length or unknown.
        replicate: Trajectory number, int16 [n].
        prompt_length: Tokens, int32 [n].
        response_length: Tokens, int32 [n].
        anchor: Token index of the anchor in prompt + response, int32 [n]; -1 where unknown.
        confidence_logits: Raw, before any temperature, float32 [n, γ]; `NO_DRAFT_LOGIT` after a block's end.
        accepted: Drafts accepted, int16 [n], 0..observed.
        observed: Positions with a known label, int16 [n], 0..γ.
        verified: Drafts sent to verification, int16 [n]; γ when nothing was cut.
        draft_tokens: int32 [n, γ], -1 after a block's end, or None.
        draft_logprobs: log q(x_k) at softmax temperature 1, float32 [n, γ], or None.
        draft_margin: Top-1 minus top-2 logit, float32 [n, γ], or None.
        draft_entropy: Nats, float32 [n, γ], or None.
        acceptance_probs: α_k = Σ min(p, q) where the prefix was accepted, else NaN, float32 [n, γ], or None.
    """

    dataset: Labels
    domain: Labels
    prompt_id: Labels
    ending: Labels
    replicate: npt.NDArray[np.int16]
    prompt_length: npt.NDArray[np.int32]
    response_length: npt.NDArray[np.int32]
    anchor: npt.NDArray[np.int32]
    confidence_logits: npt.NDArray[np.float32]
    accepted: npt.NDArray[np.int16]
    observed: npt.NDArray[np.int16]
    verified: npt.NDArray[np.int16]
    draft_tokens: npt.NDArray[np.int32] | None = None
    draft_logprobs: npt.NDArray[np.float32] | None = None
    draft_margin: npt.NDArray[np.float32] | None = None
    draft_entropy: npt.NDArray[np.float32] | None = None
    acceptance_probs: npt.NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.accepted)

    @property
    def gamma(self) -> int:
        """Drafts in a block."""
        return int(self.confidence_logits.shape[1])

    def take(self, rows: npt.NDArray[np.generic] | slice) -> "Rounds":
        """Select rows by index, mask or slice."""
        columns: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        return Rounds(**{name: _take(column, rows) for name, column in columns.items()})


def offered_drafts(rounds: Rounds) -> npt.NDArray[np.int64]:
    """Return how many drafts the drafter offered in each block, int64 [n]: γ, or fewer where it ended the block.

    Prompt lookup without a match offers none; DeepSpec's Eagle3 stops after a drafted stop token. Such a block
    is complete: nothing was withheld from verification, unlike one that a scheduler cut (its drafts exist).
    """
    offered = np.full(len(rounds), rounds.gamma, dtype=np.int64)
    short = np.flatnonzero(rounds.verified < rounds.gamma)
    verified = rounds.verified[short]
    ended = rounds.confidence_logits[short, verified] == np.float32(NO_DRAFT_LOGIT)
    offered[short[ended]] = verified[ended]
    return offered


def _take(column: Any, rows: npt.NDArray[np.generic] | slice) -> Any:
    if column is None:
        return None
    return column.take(rows) if isinstance(column, Labels) else column[rows]


def concat_rounds(parts: Sequence[Rounds]) -> Rounds:
    """Join batches row after row; an optional column stays only where every batch has it.

    Raises:
        ValueError: If there is no batch.
        IncompatibleTraces: If γ differs.
    """
    if not parts:
        raise ValueError("concat_rounds needs at least one batch")
    gammas = sorted({p.gamma for p in parts})
    if len(gammas) > 1:
        raise IncompatibleTraces(f"rounds of different block sizes cannot be joined: γ = {gammas}")
    columns: dict[str, Any] = {}
    for field in fields(Rounds):
        values = [getattr(p, field.name) for p in parts]
        if field.name in LABEL_COLUMNS:
            columns[field.name] = concat_labels(values)
        else:
            columns[field.name] = None if any(v is None for v in values) else np.concatenate(values)
    return Rounds(**columns)


def check_rounds(rounds: Rounds, where: str, first_row: int = 0) -> Rounds:
    """Refuse rows that break a rule of the trace; return the rounds unchanged otherwise.

    Args:
        rounds: The batch to look at.
        where: File name for the message.
        first_row: Row number of the batch's first row in that file (0-based).

    Raises:
        TraceFormatError: Naming the file, the row and the field of the first broken value.
    """
    gamma = rounds.gamma
    finite = np.isfinite(rounds.confidence_logits)
    problems = [
        ("confidence_logits", ~finite.all(axis=1), "is not finite"),
        ("observed", (rounds.observed < 0) | (rounds.observed > gamma), f"must lie in 0..{gamma}"),
        ("accepted", (rounds.accepted < 0) | (rounds.accepted > rounds.observed), "must lie in 0..observed"),
        ("verified", (rounds.verified < 0) | (rounds.verified > gamma), f"must lie in 0..{gamma}"),
    ]
    for field, broken, rule in problems:
        if broken.any():
            row = int(np.argmax(broken))
            value = np.asarray(getattr(rounds, field))[row].tolist()
            raise TraceFormatError(
                f"{where}, row {first_row + row}, {field} = {value}: {rule}; drop the row or collect it again"
            )
    return rounds
