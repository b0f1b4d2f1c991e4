"""Eagle3's one decoder layer, in Qwen3 and in Gemma4 shape: what differs between the two, and nothing else."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, silu

from dspark_calib.drafters.gemma4_backbone import Gemma4Layer
from dspark_calib.drafters.rotary import rotate, split_heads


class Eagle3Layer(Protocol):
    """The one decoder layer; its attention reads [input_norm(embedding); hidden_norm(hidden)]."""

    @property
    def attention_scale(self) -> float:
        """Factor on attention scores."""
        ...

    def project(self, embeds: Tensor, hidden: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return rotated queries, rotated keys and values, each [..., (KV) heads, d], of inputs [..., H]."""
        ...

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """Return the layer's output [..., H] from its residual stream and what attention mixed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3Eagle3Layer:
    """The layer in Qwen3 shape.

    Attributes:
        heads, kv_heads, head_dim: Of its attention.
        eps: Of every RMSNorm.
        qkv: [(heads + 2·KV heads)·d, 2H].
        qkv_bias: Or None.
        q_norm, k_norm: [d].
        output: [H, heads·d].
        output_bias: [H] or None.
        input_norm, hidden_norm, post_norm: [H].
        gate_up: [2·I, H].
        down: [H, I].
    """

    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor
    k_norm: Tensor
    output: Tensor
    output_bias: Tensor | None
    input_norm: Tensor
    hidden_norm: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor

    @property
    def attention_scale(self) -> float:
        """1/√d."""
        return float(self.head_dim**-0.5)

    def project(self, embeds: Tensor, hidden: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """See `Eagle3Layer`."""
        x = torch.cat((self._norm(embeds, self.input_norm), self._norm(hidden, self.hidden_norm)), dim=-1)
        joint = split_heads(linear(x, self.qkv, self.qkv_bias), self.head_dim)
        queries, keys, values = joint.split_with_sizes((self.heads, self.kv_heads, self.kv_heads), dim=-2)
        queries, keys = self._norm(queries, self.q_norm), self._norm(keys, self.k_norm)
        return rotate(queries, angles), rotate(keys, angles), values

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """See `Eagle3Layer`."""
        x = residual + linear(mixed, self.output, self.output_bias)
        gate, up = linear(self._norm(x, self.post_norm), self.gate_up).chunk(2, dim=-1)
        return x + linear(silu(gate) * up, self.down)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight.shape, weight, self.eps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gemma4Eagle3Layer:
    """The layer in Gemma4 shape.

    Attributes:
        layer: Its weights; attention takes 2H.
        hidden_norm: [H].
    """

    layer: Gemma4Layer
    hidden_norm: Tensor

    @property
    def attention_scale(self) -> float:
        """1, as everywhere in Gemma4."""
        return self.layer.attention_scale

    def project(self, embeds: Tensor, hidden: Tensor, angles: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """See `Eagle3Layer`."""
        layer = self.layer
        x = torch.cat((layer.norm(embeds, layer.input_norm), layer.norm(hidden, self.hidden_norm)), dim=-1)
        return layer.queries(x, angles), *layer.keys_values(x, angles)

    def finish(self, residual: Tensor, mixed: Tensor) -> Tensor:
        """See `Eagle3Layer`."""
        return self.layer.finish(residual, mixed)
