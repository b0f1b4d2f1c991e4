"""Attention of draft blocks: each slot sees the context before its anchor and its own block, or a window of them.

Two score pieces share one softmax, so the context's keys and values are never repeated per anchor: the
context piece is q [A·γ] against K [T] of the same sequence, masked to i < t, the own piece is γ × γ.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_calib.drafters.drafter import IMPOSSIBLE_LOGIT

MAX_SCORES = 1 << 25
"""Attention scores held at once by one layer; blocks are drafted in parts of their anchors to stay below."""


def _minus_infinity(dtype: torch.dtype) -> float:
    """Return a score that softmax turns to 0: `IMPOSSIBLE_LOGIT`, or float16's lowest number."""
    return max(IMPOSSIBLE_LOGIT, torch.finfo(dtype).min)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a sliding layer sees; slot s of a block stands at t + s.

    Attributes:
        size: W tokens.
        per_slot: True: slot s sees positions whose distance to t + s is below W (z-lab's DFlash). False: every
            slot sees the context t-W ≤ i < t (speculators).
        causal: Whether slot s sees only slots up to itself of its own block.
    """

    size: int
    per_slot: bool
    causal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockBias:
    """Additive masks of one kind of layer.

    Attributes:
        context: To add to scores [S, KV heads, A, γ·group, T]; see `context_bias`.
        own: To add to scores [S, KV heads, A, γ·group, γ]; None where every slot sees its whole block.
    """

    context: Tensor
    own: Tensor | None


def block_bias(
    window: Window | None, anchors: Tensor, length: int, slots: int, group: int, dtype: torch.dtype
) -> BlockBias:
    """Return the masks of a full or a sliding layer.

    Args:
        window: None for full attention.
        anchors: t, int64 [S, A].
        length: Context positions, T.
        slots: γ.
        group: Query heads per key head.
        dtype: Of the scores.
    """
    context = context_bias(anchors, length, dtype)
    if window is None:
        return BlockBias(context=context, own=None)
    slot = torch.arange(slots, device=anchors.device).repeat_interleave(group)
    reach = anchors[:, None, :, None, None] - window.size
    reach = reach + slot[:, None] + 1 if window.per_slot else reach
    context = context.masked_fill(torch.arange(length, device=anchors.device) < reach, _minus_infinity(dtype))
    ahead = torch.arange(slots, device=anchors.device) - slot[:, None]
    hidden = (ahead > 0) if window.causal else torch.zeros_like(ahead, dtype=torch.bool)
    hidden = hidden | (ahead.abs() >= window.size) if window.per_slot else hidden
    own = torch.zeros(hidden.shape, dtype=dtype, device=anchors.device).masked_fill_(hidden, _minus_infinity(dtype))
    return BlockBias(context=context, own=own)


def context_bias(anchors: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """Return the additive mask of the context piece: 0 where i < t, else (almost) minus infinity.

    Args:
        anchors: t, int64 [S, A].
        length: Context positions, T.
        dtype: Of the scores.

    Returns:
        Shape [S, 1, A, 1, T], to add to scores [S, KV heads, A, γ·group, T].
    """
    hidden = torch.arange(length, device=anchors.device) >= anchors[..., None]
    bias = torch.zeros(hidden.shape, dtype=dtype, device=anchors.device).masked_fill_(hidden, _minus_infinity(dtype))
    return bias[:, None, :, None, :]


def block_attention(
    queries: Tensor, own: tuple[Tensor, Tensor], context: tuple[Tensor, Tensor], bias: BlockBias, scale: float
) -> Tensor:
    """Attend from every slot of every block to its context and to its own block.

    Args:
        queries: [S, A, γ, heads, d], rotated.
        own: Keys and values of the blocks, each [S, A, γ, KV heads, d].
        context: Keys and values of the sequences, each [S, KV heads, T, d].
        bias: What each slot may see; see `block_bias`.
        scale: Factor on the scores.

    Returns:
        [S, A, γ, heads · d].
    """
    sequences, anchors, gamma, heads, d = queries.shape
    keys, values = context
    kv_heads, length = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    # [S, KV heads, A, γ·group, d]: one matrix of rows per sequence and KV head
    q = queries.view(sequences, anchors, gamma, kv_heads, group, d).permute(0, 3, 1, 2, 4, 5)
    q = (q * scale).reshape(sequences, kv_heads, anchors, gamma * group, d)
    own_keys, own_values = (x.permute(0, 3, 1, 2, 4) for x in own)
    far = (q.flatten(2, 3) @ keys.transpose(-1, -2)).view(sequences, kv_heads, anchors, gamma * group, length)
    near = q @ own_keys.transpose(-1, -2)
    near = near if bias.own is None else near + bias.own
    weights = torch.cat((far + bias.context, near), dim=-1).softmax(dim=-1, dtype=torch.float32).to(q.dtype)
    far_part = weights[..., :length].flatten(2, 3) @ values
    out = far_part.view_as(q) + weights[..., length:] @ own_values
    out = out.view(sequences, kv_heads, anchors, gamma, group, d).permute(0, 2, 3, 1, 4, 5)
    return out.reshape(sequences, anchors, gamma, heads * d)


def anchors_per_part(sequences: int, slots: int, heads: int, length: int) -> int:
    """Return how many anchors a sequence may be drafted at once within `MAX_SCORES` (at least 1)."""
    return max(1, MAX_SCORES // max(1, sequences * slots * heads * (length + slots)))
