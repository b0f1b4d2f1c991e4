"""From a DeepSpec Eagle3 checkpoint to a drafter, every field and tensor checked."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.dspark import check_is_drafter_of
from dspark_calib.drafters.eagle3 import Eagle3Drafter
from dspark_calib.drafters.eagle3_layers import Eagle3Layer, Gemma4Eagle3Layer, Qwen3Eagle3Layer
from dspark_calib.drafters.gemma4_weights import read_gemma4_layer, read_gemma4_rope, read_gemma4_shape, read_softcap
from dspark_calib.drafters.qwen3_backbone import Shape
from dspark_calib.drafters.qwen3_weights import own_or_target, read_rope, read_shape, refuse_other_options
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.errors import CheckpointError, UnsupportedModel

FEATURE_LAYERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What differs between the Qwen3 and the Gemma4 shape.

    Attributes:
        layer: The decoder layer.
        inverse_frequencies: RoPE, float32 [d/2].
        rope_scale: Factor on cosine and sine.
        scale_embeddings: Whether embeddings are multiplied by √H.
        softcap: Bound of the logits, or None.
    """

    layer: Eagle3Layer
    inverse_frequencies: Tensor
    rope_scale: float = 1.0
    scale_embeddings: bool = False
    softcap: float | None = None


def build_qwen3_eagle3(checkpoint: DrafterCheckpoint, target: TargetParts) -> Eagle3Drafter:
    """Build DeepSpec's `Qwen3Eagle3Model` (`Eagle3DraftModel` in its older exports) for its target.

    Raises:
        CheckpointError: If the checkpoint is damaged or belongs to another target.
        UnsupportedModel: If it holds an option this version does not run.
    """
    checkpoint = _as_block_drafter(checkpoint)
    refuse_other_options(checkpoint)
    shape = read_shape(checkpoint, target)
    frequencies, rope_scale = read_rope(checkpoint, shape)
    layer = _read_qwen3_layer(checkpoint, shape)
    return _build(
        checkpoint, target, shape, _Parts(layer=layer, inverse_frequencies=frequencies, rope_scale=rope_scale)
    )


def build_gemma4_eagle3(checkpoint: DrafterCheckpoint, target: TargetParts) -> Eagle3Drafter:
    """Build DeepSpec's `Gemma4Eagle3Model` for its target.

    Raises:
        CheckpointError: If the checkpoint is damaged or belongs to another target.
        UnsupportedModel: If it holds an option this version does not run.
    """
    checkpoint = _as_block_drafter(checkpoint)
    shape = read_gemma4_shape(checkpoint, target)
    hidden_norm = checkpoint.tensor("layers.0.hidden_norm.weight", (shape.hidden,))
    parts = _Parts(
        layer=Gemma4Eagle3Layer(
            layer=read_gemma4_layer(checkpoint, 0, shape, width=2 * shape.hidden), hidden_norm=hidden_norm
        ),
        inverse_frequencies=read_gemma4_rope(checkpoint, shape),
        scale_embeddings=True,
        softcap=read_softcap(checkpoint),
    )
    return _build(checkpoint, target, shape, parts)


def _as_block_drafter(checkpoint: DrafterCheckpoint) -> DrafterCheckpoint:
    """Return the checkpoint with Eagle3's names for γ, and no mask token, as a block drafter's config has them."""
    gamma = checkpoint.integer("ttt_length", 1)
    return replace(checkpoint, config={**checkpoint.config, "block_size": gamma, "mask_token_id": 0})


def _build(checkpoint: DrafterCheckpoint, target: TargetParts, shape: Shape, parts: _Parts) -> Eagle3Drafter:
    layer_ids = checkpoint.layer_ids("target_layer_ids")
    _check_layout(checkpoint, layer_ids)
    check_is_drafter_of(checkpoint, target, layer_ids)
    return Eagle3Drafter(
        gamma=shape.gamma,
        vocab_size=target.vocab_size,
        target_layer_ids=layer_ids,
        layer=parts.layer,
        fuse=checkpoint.tensor("fc.weight", (shape.hidden, len(layer_ids) * shape.hidden)),
        norm=checkpoint.tensor("norm.weight", (shape.hidden,)),
        eps=shape.eps,
        embed_tokens=own_or_target(checkpoint, "embed_tokens.weight", target.embed_tokens),
        lm_head=own_or_target(checkpoint, "lm_head.weight", target.lm_head),
        scale_embeddings=parts.scale_embeddings,
        softcap=parts.softcap,
        inverse_frequencies=parts.inverse_frequencies,
        rope_scale=parts.rope_scale,
        stop_tokens=target.stop_tokens,
    )


def _check_layout(checkpoint: DrafterCheckpoint, layer_ids: tuple[int, ...]) -> None:
    """Refuse what DeepSpec's Eagle3 does not have: other than five increasing layers ≥ 0, more than one draft layer."""
    if len(layer_ids) != FEATURE_LAYERS or layer_ids[0] < 0 or list(layer_ids) != sorted(set(layer_ids)):
        raise CheckpointError(
            f"{checkpoint.config_file}, target_layer_ids = {list(layer_ids)}: DeepSpec's Eagle3 takes exactly "
            f"{FEATURE_LAYERS} increasing layers, 0 or more"
        )
    layers = checkpoint.integer("num_hidden_layers", 1)
    if layers != 1:
        raise UnsupportedModel(
            f"{checkpoint.config_file}, num_hidden_layers = {layers}: this version drafts with one Eagle3 layer, "
            "as DeepSpec's evaluator does"
        )


def _read_qwen3_layer(checkpoint: DrafterCheckpoint, shape: Shape) -> Qwen3Eagle3Layer:
    hidden, d = shape.hidden, shape.head_dim
    inner = checkpoint.integer("intermediate_size", 1)
    rows = {"q": shape.heads * d, "k": shape.kv_heads * d, "v": shape.kv_heads * d}
    biased = checkpoint.flag("attention_bias", default=False)

    def read(name: str, *size: int) -> Tensor:
        return checkpoint.tensor(f"layers.0.{name}", size)

    qkv_biases = [read(f"self_attn.{x}_proj.bias", n) for x, n in rows.items()] if biased else None
    return Qwen3Eagle3Layer(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=d,
        eps=shape.eps,
        qkv=torch.cat([read(f"self_attn.{x}_proj.weight", n, 2 * hidden) for x, n in rows.items()]),
        qkv_bias=None if qkv_biases is None else torch.cat(qkv_biases),
        q_norm=read("self_attn.q_norm.weight", d),
        k_norm=read("self_attn.k_norm.weight", d),
        output=read("self_attn.o_proj.weight", hidden, shape.heads * d),
        output_bias=read("self_attn.o_proj.bias", hidden) if biased else None,
        input_norm=read("input_layernorm.weight", hidden),
        hidden_norm=read("hidden_norm.weight", hidden),
        post_norm=read("post_attention_layernorm.weight", hidden),
        gate_up=torch.cat([read(f"mlp.{x}_proj.weight", inner, hidden) for x in ("gate", "up")]),
        down=read("mlp.down_proj.weight", hidden, inner),
    )
