"""Blocks whose first slot only carries the anchor token: slot j predicts the token at t + j, slot 0 nothing.

z-lab's DFlash and speculators' exports without `sample_from_anchor` draft this way: a block of B slots gives
γ = B - 1 drafts.
"""

from dataclasses import dataclass

from torch import Tensor

from dspark_calib.drafters.dspark import Backbone
from dspark_calib.drafters.gemma4_backbone import cap_logits
from dspark_calib.drafters.qwen3_backbone import ContextCache


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorSlotDropped:
    """A backbone of B slots, shown as the B - 1 that predict; see `Backbone`.

    Attributes:
        inner: The backbone.
        multiplier: Factor on the base logits.
        softcap: Bound of the base logits, or None.
    """

    inner: Backbone
    multiplier: float = 1.0
    softcap: float | None = None

    def encode(self, features: Tensor, start: int) -> ContextCache:
        """Return keys and values of features [S, n, F] at positions start … start+n-1."""
        return self.inner.encode(features, start)

    def block_states(self, cache: ContextCache, anchors: Tensor, anchor_tokens: Tensor) -> Tensor:
        """Return the states of slots 1 … B-1, [B-1, S, A, H]."""
        return self.inner.block_states(cache, anchors, anchor_tokens)[1:]

    def base_logits(self, states: Tensor) -> Tensor:
        """Return the base logits [..., V], multiplied or capped where the checkpoint says so."""
        logits = self.inner.base_logits(states)
        logits = logits if self.multiplier == 1.0 else logits * self.multiplier
        return cap_logits(logits, self.softcap)
