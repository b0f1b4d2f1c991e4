"""The interface every drafter family fulfils: encode sequences once, draft blocks at any anchors.

One shape serves both ways of collecting: many sequences with one anchor each (lockstep waves), and
few sequences with many anchors each. Nothing is said here about acceptance: a drafter gives logits,
whoever calls it chooses the draft tokens and feeds them back.

Shapes: S sequences, T tokens, A anchors a sequence, γ draft positions, V vocabulary entries,
F = len(target_layer_ids) · hidden size of the target (0 when the drafter needs no target features).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

IMPOSSIBLE_LOGIT = -1e30
"""Logit of a token the drafter can never draft (a pruned vocabulary, a lookup): finite, so that
softmax gives 0 and products with a probability never give NaN; below bfloat16's and float32's range
of real logits. float16 cannot hold it: see `wide_enough`."""


def wide_enough(logits: Tensor) -> Tensor:
    """Return logits of a type that can hold `IMPOSSIBLE_LOGIT`: float16 becomes float32, others stay."""
    return logits.float() if logits.dtype == torch.float16 else logits


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStep:
    """What the drafter says about one draft position of every block.

    Attributes:
        logits: Draft logits before any temperature, float, shape [S, A, V]; never NaN or infinite
            (see `IMPOSSIBLE_LOGIT`). The caller may overwrite them.
        confidence_logits: Raw confidence logits z_k, shape [S, A]; None without a confidence head.
        drafted: Whether the block has a draft here, bool [S, A]; None where every block does. A block that
            ended (no match to copy, a drafted stop token) stays False to its end: such a slot is not sent to
            verification, never accepted and never observed. Its logits mean nothing but are finite.
    """

    logits: Tensor
    confidence_logits: Tensor | None
    drafted: Tensor | None = None


class DraftBlock(Protocol):
    """The γ draft positions of one block for every anchor; stepped through once, left to right."""

    def step(self, slot: int, previous_tokens: Tensor) -> DraftStep:
        """Return logits and confidence of one draft position.

        Args:
            slot: 0-based draft position, called for 0, 1, …, γ-1 in this order.
            previous_tokens: The token before it, int64 [S, A]: the anchor token at slot 0, then the
                draft token chosen for the slot before (not the target's token).
        """
        ...


class DraftContext(Protocol):
    """Sequences the drafter has read: tokens 0 … T-1 and target features of positions 0 … T-2.

    A feature of position i may reach only blocks whose anchor t is greater than i. Sequences are
    padded on the right, so nothing at or after an anchor may influence its block, apart from the
    anchor token itself.
    """

    def draft(self, anchors: Tensor) -> DraftBlock:
        """Open the blocks of these anchors.

        Args:
            anchors: 0-based token indices t, int64 [S, A], 1 ≤ t ≤ T-1; repeats are allowed.
        """
        ...

    def append(self, tokens: Tensor, features: Tensor) -> None:
        """Read n more tokens of every sequence (the decoding loop's cache).

        Args:
            tokens: Tokens at positions T … T+n-1, int64 [S, n].
            features: Target features of positions T-1 … T+n-2, shape [S, n, F].
        """
        ...

    def take(self, rows: Tensor) -> "DraftContext":
        """Return the context of these sequences only, in this order (rows: int64 [S'])."""
        ...


class Drafter(Protocol):
    """A draft model, loaded on its device."""

    @property
    def gamma(self) -> int:
        """Draft positions of a block, γ."""
        ...

    @property
    def vocab_size(self) -> int:
        """Entries of the draft logits, V: the target's vocabulary, also where the drafter's is pruned."""
        ...

    @property
    def target_layer_ids(self) -> Sequence[int]:
        """Target layers whose output is a feature, 0-based, -1 for the embeddings; may be empty.

        Features are the concatenation, in this order, of transformers' `hidden_states[id + 1]`.
        """
        ...

    @property
    def has_confidence_head(self) -> bool:
        """Whether steps carry confidence logits."""
        ...

    def encode(self, tokens: Tensor, features: Tensor) -> DraftContext:
        """Read sequences: everything that does not depend on the anchor is computed here, once.

        Args:
            tokens: Prompt and response tokens, int64 [S, T], padded on the right with any valid id.
            features: Target features of every position but the last, [S, T-1, F].
        """
        ...
