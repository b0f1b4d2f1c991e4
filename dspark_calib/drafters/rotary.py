"""Rotary position embeddings in the rotate-half convention, and heads as an axis."""

import torch
from torch import Tensor


def rotation(positions: Tensor, frequencies: Tensor, dtype: torch.dtype, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of every position; angles in float32, as transformers does.

    Args:
        positions: Token positions, int64 [...].
        frequencies: Inverse frequencies θ_i, float32 [d/2].
        dtype: Of the result.
        scale: Factor on both (1 except for scaled RoPE).

    Returns:
        Two tensors [..., 1, d], to be used on [..., heads, d].
    """
    angles = positions[..., None].float() * frequencies
    angles = torch.cat((angles, angles), dim=-1)[..., None, :]
    return (angles.cos() * scale).to(dtype), (angles.sin() * scale).to(dtype)


def rotate(x: Tensor, cosine_sine: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate x [..., heads, d] by the angles of its position."""
    cosine, sine = cosine_sine
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """View [..., heads · d] as [..., heads, d]."""
    return x.view(*x.shape[:-1], -1, head_dim)
