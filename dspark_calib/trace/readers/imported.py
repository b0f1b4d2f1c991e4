"""What an import hands back: rounds, where they come from, and an account of every row."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.labels import Labels
from dspark_calib.trace.provenance import Provenance
from dspark_calib.trace.rounds import UNKNOWN_ANCHOR, Rounds

NO_PROMPT_IDS = (
    "The source has no prompt ids: contiguous blocks of 100 rounds stand in for prompts in every split and "
    "interval, so intervals may be too narrow."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAccount:
    """Every row of the source is either a row of the result or refused for a reason.

    Attributes:
        read: Rows of the source.
        kept: Rows of the result.
        refused: (reason, rows), in order of first appearance.
    """

    read: int
    kept: int
    refused: tuple[tuple[str, int], ...]

    @property
    def balances(self) -> bool:
        """Whether rows in = rows out + rows refused."""
        return self.read == self.kept + sum(count for _, count in self.refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """Rounds read from a foreign format.

    Attributes:
        batches: In the order of the source.
        provenance: With the format's own traps as notes.
        account: Rows read, kept and refused.
    """

    batches: tuple[Rounds, ...]
    provenance: Provenance
    account: RowAccount


class RefusedRows:
    """Counts rows that could not be used, by reason."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def refuse(self, reason: str, rows: int = 1) -> None:
        """Count rows refused for this reason."""
        if rows:
            self.counts[reason] += rows

    def account(self, kept: int) -> RowAccount:
        """Close the account."""
        return RowAccount(read=kept + self.counts.total(), kept=kept, refused=tuple(self.counts.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The columns that foreign formats know; the rest of a trace's row is unknown.

    Attributes:
        logits: Raw confidence logits, float32 [n, γ].
        accepted: int [n].
        observed: int [n].
        verified: int [n], or None for γ everywhere.
        anchor: int [n], or None where unknown.
        draft_tokens: int32 [n, γ], or None.
    """

    logits: npt.NDArray[np.float32]
    accepted: npt.NDArray[np.integer]
    observed: npt.NDArray[np.integer]
    verified: npt.NDArray[np.integer] | None = None
    anchor: npt.NDArray[np.integer] | None = None
    draft_tokens: npt.NDArray[np.int32] | None = None


def block_rounds(block: Block, *, dataset: str, prompt_ids: Labels | None = None) -> Rounds:
    """Return rounds with the columns of the block; lengths of unknown prompts and responses are 0."""
    n, gamma = block.logits.shape
    verified = np.full(n, gamma) if block.verified is None else block.verified
    anchor = np.full(n, UNKNOWN_ANCHOR) if block.anchor is None else block.anchor
    return Rounds(
        dataset=Labels.constant(dataset, n),
        domain=Labels.constant(None, n),
        prompt_id=Labels.constant(None, n) if prompt_ids is None else prompt_ids,
        ending=Labels.constant("unknown", n),
        replicate=np.zeros(n, np.int16),
        prompt_length=np.zeros(n, np.int32),
        response_length=np.zeros(n, np.int32),
        anchor=anchor.astype(np.int32),
        confidence_logits=block.logits,
        accepted=block.accepted.astype(np.int16),
        observed=block.observed.astype(np.int16),
        verified=verified.astype(np.int16),
        draft_tokens=block.draft_tokens,
    )


def finish(batches: Sequence[Rounds], refused: RefusedRows, provenance: Provenance, where: str) -> Imported:
    """Close the account and put the refused rows into the provenance.

    Raises:
        TraceFormatError: If no row is left.
    """
    kept = sum(len(batch) for batch in batches)
    account = refused.account(kept)
    if not kept:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in account.refused) or "the source is empty"
        raise TraceFormatError(f"{where}: no usable round ({reasons})")
    counted = replace(provenance, refused=dict(account.refused))
    return Imported(batches=tuple(b for b in batches if len(b)), provenance=counted, account=account)
