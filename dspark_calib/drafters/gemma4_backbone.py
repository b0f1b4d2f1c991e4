"""The Gemma4-shaped draft backbone of DSpark and DFlash, written for many blocks at once.

Follows DeepSpec's `Gemma4DSparkModel`. What differs from the Qwen3 shape: embeddings times √H; a norm
before and after attention and MLP; values normalised without a weight; with `attention_k_eq_v` the key
projection gives the values too; attention scale 1; RoPE over part of the head; a scalar on each layer's
output; logits capped at ±cap by tanh (the Markov bias comes after the cap).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding, gelu, linear, rms_norm

from dspark_calib.drafters.attention import anchors_per_part, block_attention, block_bias
from dspark_calib.drafters.qwen3_backbone import ContextCache, Shape
from dspark_calib.drafters.rotary import rotate, rotation, split_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma4Layer:
    """Weights of one Gemma4 decoder layer; X is the width of what enters attention (H, or 2H in Eagle3).

    Attributes:
        head_dim: d.
        eps: Of every RMSNorm.
        query: [heads·d, X].
        key: [KV heads·d, X].
        value: [KV heads·d, X]; None where keys and values share a projection.
        query_bias, key_bias, value_bias, output_bias: Or None.
        q_norm, k_norm: [d].
        output: [H, heads·d].
        input_norm, post_attention_norm, pre_feedforward_norm, post_feedforward_norm: [H].
        gate_up: [2·I, H].
        down: [H, I].
        scalar: On the layer's output, [1].
    """

    head_dim: int
    eps: float
    query: Tensor
    key: Tensor
    value: Tensor | None
    query_bias: Tensor | None
    key_bias: Tensor | None
    value_bias: Tensor | None
    output_bias: Tensor | None
    q_norm: Tensor
    k_norm: Tensor
    output: Tensor
    input_norm: Tensor
    post_attention_norm: Tensor
    pre_feedforward_norm: Tensor
    post_feedforward_norm: Tensor
    gate_up: Tensor
    down: Tensor
    scalar: Tensor

    @property
    def attention_scale(self) -> float:
        """Factor on attention scores; q_norm and k_norm already set their size."""
        return 1.0

    def queries(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        """Return rotated queries [..., heads, d] of x [..., X]."""
        q = split_heads(linear(x, self.query, self.query_bias), self.head_dim)
        return rotate(rms_norm(q, (self.head_dim,), self.q_norm, self.eps), angles)

    def keys_values(self, x: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return rotated keys and values, each [..., KV heads, d], of x [..., X]."""
        d = (self.head_dim,)
        keys = split_heads(linear(x, self.key, self.key_bias), self.head_dim)
        values = keys if self.value is None else split_heads(linear(x, self.value, self.value_bias), self.head_dim)
        return rotate(rms_norm(keys, d, self.k_norm, self.eps), angles), rms_norm(values, d, None, self.eps)

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """Return the layer's output [..., H] from its residual stream and what attention mixed [..., heads·d]."""
        attended = linear(mixed, self.output, self.output_bias)
        x = residual + self.norm(attended, self.post_attention_norm)
        gate, up = linear(self.norm(x, self.pre_feedforward_norm), self.gate_up).chunk(2, dim=-1)
        inner = linear(gelu(gate, approximate="tanh") * up, self.down)
        return (x + self.norm(inner, self.post_feedforward_norm)) * self.scalar

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return RMSNorm over the last axis."""
        return rms_norm(x, weight.shape, weight, self.eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma4Backbone:
    """Weights and forward pass; see `Backbone` in the DSpark module.

    Attributes:
        shape: Sizes.
        layers: Draft layers.
        fuse: fc.weight [H, F].
        hidden_norm, norm: [H].
        embed_tokens, lm_head: [V, H].
        inverse_frequencies: RoPE, float32 [d/2], zeros where the head is not rotated.
        softcap: Bound of the base logits, or None.
    """

    shape: Shape
    layers: tuple[Gemma4Layer, ...]
    fuse: Tensor
    hidden_norm: Tensor
    norm: Tensor
    embed_tokens: Tensor
    lm_head: Tensor
    inverse_frequencies: Tensor
    softcap: float | None

    def encode(self, features: Tensor, start: int) -> ContextCache:
        """Return every layer's context keys and values for features [S, n, F] at positions start … start+n-1."""
        context = rms_norm(linear(features, self.fuse), self.hidden_norm.shape, self.hidden_norm, self.shape.eps)
        positions = torch.arange(start, start + features.shape[1], device=features.device)
        angles = rotation(positions, self.inverse_frequencies, context.dtype)
        cache = ContextCache([], [])
        for layer in self.layers:
            keys, values = layer.keys_values(context, angles)
            cache.keys.append(keys.transpose(1, 2).contiguous())
            cache.values.append(values.transpose(1, 2).contiguous())
        return cache

    def block_states(self, cache: ContextCache, anchors: Tensor, anchor_tokens: Tensor) -> Tensor:
        """Return h_1 … h_γ of every block, [γ, S, A, H] (anchors and their tokens: int64 [S, A])."""
        part = anchors_per_part(anchors.shape[0], self.shape.gamma, self.shape.heads, cache.length)
        pairs = zip(torch.split(anchors, part, dim=1), torch.split(anchor_tokens, part, dim=1), strict=True)
        return torch.cat([self._block_states(cache, *pair) for pair in pairs], dim=2)

    def _block_states(self, cache: ContextCache, anchors: Tensor, anchor_tokens: Tensor) -> Tensor:
        slots = self.shape.gamma
        tokens = anchor_tokens[..., None].expand(*anchors.shape, slots).clone()
        tokens[..., 1:] = self.shape.mask_token
        x = scaled_embedding(tokens, self.embed_tokens)
        positions = anchors[..., None] + torch.arange(slots, device=anchors.device)
        angles = rotation(positions, self.inverse_frequencies, x.dtype)
        bias = block_bias(None, anchors, cache.length, slots, 1, x.dtype)
        for layer, *context in zip(self.layers, cache.keys, cache.values, strict=True):
            normed = layer.norm(x, layer.input_norm)
            own = layer.keys_values(normed, angles)
            keys, values = context
            mixed = block_attention(layer.queries(normed, angles), own, (keys, values), bias, layer.attention_scale)
            x = layer.finish(x, mixed)
        return rms_norm(x, self.norm.shape, self.norm, self.shape.eps).permute(2, 0, 1, 3)

    def base_logits(self, states: Tensor) -> Tensor:
        """Return the capped logits [..., V] of states [..., H]."""
        return cap_logits(linear(states, self.lm_head), self.softcap)


def scaled_embedding(tokens: Tensor, weight: Tensor) -> Tensor:
    """Return embeddings times √H, the factor rounded to the weight's dtype as transformers does."""
    scale = torch.tensor(float(weight.shape[1]) ** 0.5, dtype=weight.dtype, device=weight.device)
    return embedding(tokens, weight) * scale


def cap_logits(logits: Tensor, cap: float | None) -> Tensor:
    """Return cap · tanh(logits / cap), or the logits where there is no cap."""
    return logits if cap is None else torch.tanh(logits / cap) * cap
