"""The Qwen3-shaped draft backbone of DSpark and DFlash, written for many blocks at once.

Follows DeepSpec's `Qwen3DSparkModel`: the context c = hidden_norm(fc(features)) is the same for all layers
and passes no input_layernorm; keys and values of context and block come from the same projections; slots
sit at RoPE positions t … t+γ-1; attention is not causal. Reading weights is in `qwen3_weights`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm, silu

from dspark_calib.drafters.attention import BlockBias, Window, anchors_per_part, block_attention, block_bias
from dspark_calib.drafters.rotary import rotate, rotation, split_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the backbone.

    Attributes:
        hidden: H.
        heads: Query heads.
        kv_heads: Key and value heads.
        head_dim: d.
        eps: Of every RMSNorm.
        gamma: Draft positions of a block.
        mask_token: Input token of every slot but the first.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    gamma: int
    mask_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights of one draft layer; q, k, v and gate, up lie fused so that each is one product.

    Attributes:
        qkv: [(heads + 2·KV heads)·d, H]; the rows of k and v alone serve the context.
        qkv_bias: [(heads + 2·KV heads)·d] or None.
        q_norm, k_norm: [d].
        output: [H, heads·d].
        output_bias: [H] or None.
        input_norm, post_norm: [H].
        gate_up: [2·I, H].
        down: [H, I].
        window: What the layer sees; None for full attention (DeepSpec's only kind).
    """

    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor
    k_norm: Tensor
    output: Tensor
    output_bias: Tensor | None
    input_norm: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor
    window: Window | None = None


@dataclass(slots=True)
class ContextCache:
    """Keys and values of every layer, each [S, KV heads, T, d]."""

    keys: list[Tensor]
    values: list[Tensor]

    @property
    def length(self) -> int:
        """Context positions, T."""
        return int(self.keys[0].shape[2])

    def extend(self, other: "ContextCache") -> None:
        """Append another cache's positions."""
        self.keys = [torch.cat(pair, dim=2) for pair in zip(self.keys, other.keys, strict=True)]
        self.values = [torch.cat(pair, dim=2) for pair in zip(self.values, other.values, strict=True)]

    def take(self, rows: Tensor) -> "ContextCache":
        """Return the cache of these sequences."""
        return ContextCache([k[rows] for k in self.keys], [v[rows] for v in self.values])


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Backbone:
    """Weights and forward pass.

    Attributes:
        shape: Sizes.
        layers: Draft layers.
        fuse: fc.weight [H, F].
        hidden_norm, norm: [H].
        embed_tokens, lm_head: [V, H].
        inverse_frequencies: RoPE, float32 [d/2].
        rope_scale: Factor on cosine and sine (1 except for scaled RoPE).
    """

    shape: Shape
    layers: tuple[Layer, ...]
    fuse: Tensor
    hidden_norm: Tensor
    norm: Tensor
    embed_tokens: Tensor
    lm_head: Tensor
    inverse_frequencies: Tensor
    rope_scale: float

    def encode(self, features: Tensor, start: int) -> ContextCache:
        """Return every layer's context keys and values for features [S, n, F] at positions start … start+n-1."""
        shape = self.shape
        context = rms_norm(linear(features, self.fuse), (shape.hidden,), self.hidden_norm, shape.eps)
        positions = torch.arange(start, start + features.shape[1], device=features.device)
        angles = rotation(positions, self.inverse_frequencies, context.dtype, self.rope_scale)
        query_rows = shape.heads * shape.head_dim
        cache = ContextCache([], [])
        for layer in self.layers:
            bias = None if layer.qkv_bias is None else layer.qkv_bias[query_rows:]
            joint = split_heads(linear(context, layer.qkv[query_rows:], bias), shape.head_dim)
            keys, values = joint.chunk(2, dim=-2)
            keys = rotate(rms_norm(keys, (shape.head_dim,), layer.k_norm, shape.eps), angles)
            cache.keys.append(keys.transpose(1, 2).contiguous())
            cache.values.append(values.transpose(1, 2).contiguous())
        return cache

    def block_states(self, cache: ContextCache, anchors: Tensor, anchor_tokens: Tensor) -> Tensor:
        """Return h_1 … h_γ of every block.

        Args:
            cache: Context of the same sequences.
            anchors: t, int64 [S, A].
            anchor_tokens: token_t, int64 [S, A].

        Returns:
            [γ, S, A, H]: one slot's states lie together, as the vocabulary projection wants them.
        """
        shape = self.shape
        part = anchors_per_part(anchors.shape[0], shape.gamma, shape.heads, cache.length)
        columns = [slice(i, i + part) for i in range(0, anchors.shape[1], part)]
        return torch.cat([self._block_states(cache, anchors[:, c], anchor_tokens[:, c]) for c in columns], dim=2)

    def _block_states(self, cache: ContextCache, anchors: Tensor, anchor_tokens: Tensor) -> Tensor:
        shape = self.shape
        tokens = anchor_tokens[..., None].expand(*anchors.shape, shape.gamma).clone()
        tokens[..., 1:] = shape.mask_token
        x = embedding(tokens, self.embed_tokens)
        positions = anchors[..., None] + torch.arange(shape.gamma, device=anchors.device)
        angles = rotation(positions, self.inverse_frequencies, x.dtype, self.rope_scale)
        group = shape.heads // shape.kv_heads
        bias = {
            window: block_bias(window, anchors, cache.length, shape.gamma, group, x.dtype)
            for window in {layer.window for layer in self.layers}
        }
        for layer, keys, values in zip(self.layers, cache.keys, cache.values, strict=True):
            x = x + self._attend(layer, x, (keys, values), bias[layer.window], angles)
            normed = rms_norm(x, (shape.hidden,), layer.post_norm, shape.eps)
            gate, up = linear(normed, layer.gate_up).chunk(2, dim=-1)
            x = x + linear(silu(gate) * up, layer.down)
        return rms_norm(x, (shape.hidden,), self.norm, shape.eps).permute(2, 0, 1, 3)

    def _attend(
        self, layer: Layer, x: Tensor, context: tuple[Tensor, Tensor], bias: BlockBias, angles: tuple[Tensor, Tensor]
    ) -> Tensor:
        shape, d = self.shape, (self.shape.head_dim,)
        normed = rms_norm(x, (shape.hidden,), layer.input_norm, shape.eps)
        joint = split_heads(linear(normed, layer.qkv, layer.qkv_bias), shape.head_dim)
        sizes = (shape.heads, shape.kv_heads, shape.kv_heads)
        queries, keys, values = torch.split_with_sizes(joint, sizes, dim=-2)
        queries = rotate(rms_norm(queries, d, layer.q_norm, shape.eps), angles)
        keys = rotate(rms_norm(keys, d, layer.k_norm, shape.eps), angles)
        mixed = block_attention(queries, (keys, values), context, bias, shape.head_dim**-0.5)
        return linear(mixed, layer.output, layer.output_bias)

    def base_logits(self, states: Tensor) -> Tensor:
        """Return lm_head(h) [..., V] for states [..., H]."""
        return linear(states, self.lm_head)
