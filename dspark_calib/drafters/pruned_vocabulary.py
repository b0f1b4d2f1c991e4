"""A drafter that knows only part of the target's vocabulary, shown with all of it.

Draft id i stands for target id i + d2t[i]; the other target ids can never be drafted (q = 0).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.drafter import IMPOSSIBLE_LOGIT, DraftBlock, DraftContext, Drafter, DraftStep, wide_enough
from dspark_calib.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedDrafter:
    """Puts the logits of another drafter where the target has them.

    Attributes:
        inner: The drafter over Vd draft ids; it reads target ids as previous tokens.
        target_ids: Target id of each draft id, int64 [Vd].
        vocab_size: V of the target.
    """

    inner: Drafter
    target_ids: Tensor
    vocab_size: int

    @property
    def gamma(self) -> int:
        """Draft positions of a block, γ."""
        return self.inner.gamma

    @property
    def target_layer_ids(self) -> tuple[int, ...]:
        """Target layers whose output is a feature."""
        return tuple(self.inner.target_layer_ids)

    @property
    def has_confidence_head(self) -> bool:
        """Whether steps carry confidence logits."""
        return self.inner.has_confidence_head

    def encode(self, tokens: Tensor, features: Tensor) -> "PrunedContext":
        """Read sequences (tokens int64 [S, T], features [S, T-1, F])."""
        return PrunedContext(self, self.inner.encode(tokens, features))


class PrunedContext:
    """The inner drafter's context; see `DraftContext`."""

    def __init__(self, drafter: PrunedDrafter, inner: DraftContext) -> None:
        self._drafter = drafter
        self._inner = inner

    def draft(self, anchors: Tensor) -> "PrunedBlock":
        """Open the blocks of these anchors [S, A]."""
        return PrunedBlock(self._drafter, self._inner.draft(anchors))

    def append(self, tokens: Tensor, features: Tensor) -> None:
        """Read more tokens [S, n] and the features [S, n, F] of the positions before them."""
        self._inner.append(tokens, features)

    def take(self, rows: Tensor) -> "PrunedContext":
        """Return the context of these sequences."""
        return PrunedContext(self._drafter, self._inner.take(rows))


class PrunedBlock:
    """The inner drafter's blocks; see `DraftBlock`."""

    def __init__(self, drafter: PrunedDrafter, inner: DraftBlock) -> None:
        self._drafter = drafter
        self._inner = inner

    def step(self, slot: int, previous_tokens: Tensor) -> DraftStep:
        """Return the inner logits [S, A, Vd] spread over [S, A, V]."""
        step = self._inner.step(slot, previous_tokens)
        few = wide_enough(step.logits)
        shape = (*few.shape[:-1], self._drafter.vocab_size)
        logits = few.new_full(shape, IMPOSSIBLE_LOGIT).index_copy_(-1, self._drafter.target_ids, few)
        return DraftStep(logits=logits, confidence_logits=step.confidence_logits, drafted=step.drafted)


def read_target_ids(checkpoint: DrafterCheckpoint, draft_size: int, vocab_size: int) -> Tensor:
    """Read d2t, and check it against t2d where that is saved too.

    Args:
        checkpoint: The drafter.
        draft_size: Vd.
        vocab_size: V of the target.

    Returns:
        Target id of each draft id, int64 [Vd].

    Raises:
        CheckpointError: If the map is missing, has another size, leaves the vocabulary, repeats an id or
            contradicts t2d.
    """
    offsets, kept = checkpoint.tensors.get("d2t"), checkpoint.tensors.get("t2d")
    where = f"{checkpoint.folder}, tensor d2t"
    if offsets is None or tuple(offsets.shape) != (draft_size,) or offsets.is_floating_point():
        found = "missing" if offsets is None else f"{offsets.dtype} {list(offsets.shape)}"
        raise CheckpointError(f"{where}: {found}, but draft_vocab_size asks for whole numbers [{draft_size}]")
    ids = torch.arange(draft_size) + offsets.long()
    if int(ids.min()) < 0 or int(ids.max()) >= vocab_size or len(set(ids.tolist())) != draft_size:
        raise CheckpointError(f"{where}: draft ids must map to {draft_size} different ids below {vocab_size}")
    if kept is not None and (
        kept.shape != (vocab_size,) or not torch.equal(kept.bool().nonzero()[:, 0], ids.sort()[0])
    ):
        raise CheckpointError(f"{checkpoint.folder}, tensor t2d: does not name the ids that d2t maps to")
    return ids.to(checkpoint.device)
