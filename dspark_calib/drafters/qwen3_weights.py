"""From a DeepSpec checkpoint of Qwen3 shape to a backbone, every field and tensor checked."""

from typing import Any

import torch
from torch import Tensor

from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.qwen3_backbone import Layer, Qwen3Backbone, Shape
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.errors import CheckpointError, UnsupportedModel

_ROPE_FIELDS = ("rope_parameters", "rope_theta", "rope_scaling", "max_position_embeddings")
_FIXED_ROPE = ("default", "linear", "yarn", "llama3")


def read_qwen3_backbone(checkpoint: DrafterCheckpoint, target: TargetParts, features: int) -> Qwen3Backbone:
    """Read the backbone.

    Args:
        checkpoint: The drafter.
        target: Gives embeddings and vocabulary projection where the checkpoint left them out.
        features: Feature layers, L; fc is [H, L·H].

    Raises:
        CheckpointError: If a field or tensor is missing, misshapen or not finite.
        UnsupportedModel: If an option is one that DeepSpec's model does not have.
    """
    shape = read_shape(checkpoint, target)
    refuse_other_options(checkpoint)
    frequencies, rope_scale = read_rope(checkpoint, shape)
    hidden = (shape.hidden,)
    return Qwen3Backbone(
        shape=shape,
        layers=tuple(_read_layer(checkpoint, i, shape) for i in range(checkpoint.integer("num_hidden_layers", 1))),
        fuse=checkpoint.tensor("fc.weight", (shape.hidden, features * shape.hidden)),
        hidden_norm=checkpoint.tensor("hidden_norm.weight", hidden),
        norm=checkpoint.tensor("norm.weight", hidden),
        embed_tokens=own_or_target(checkpoint, "embed_tokens.weight", target.embed_tokens),
        lm_head=own_or_target(checkpoint, "lm_head.weight", target.lm_head),
        inverse_frequencies=frequencies,
        rope_scale=rope_scale,
    )


def own_or_target(checkpoint: DrafterCheckpoint, name: str, targets: Tensor) -> Tensor:
    """Return the checkpoint's copy of a matrix [V, H], or the target's where the export left it out."""
    if name in checkpoint.tensors:
        return checkpoint.tensor(name, tuple(targets.shape))
    return targets.to(checkpoint.device, checkpoint.dtype)


def read_shape(
    checkpoint: DrafterCheckpoint,
    target: TargetParts,
    *,
    kv_heads_field: str = "num_key_value_heads",
    head_dim_field: str = "head_dim",
) -> Shape:
    """Read the sizes of a DSpark backbone.

    Args:
        checkpoint: The drafter's.
        target: Bounds the mask token.
        kv_heads_field: Where the config counts the key-value heads.
        head_dim_field: Where it gives a head's width.

    Raises:
        CheckpointError: If a field is missing or impossible.
    """
    heads, kv_heads = checkpoint.integer("num_attention_heads", 1), checkpoint.integer(kv_heads_field, 1)
    if heads % kv_heads:
        raise CheckpointError(f"{checkpoint.config_file}, num_attention_heads = {heads}: not a multiple of {kv_heads}")
    mask_token = checkpoint.integer("mask_token_id", 0)
    if mask_token >= target.vocab_size:
        raise CheckpointError(f"{checkpoint.config_file}, mask_token_id = {mask_token}: outside the vocabulary")
    return Shape(
        hidden=checkpoint.integer("hidden_size", 1),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=checkpoint.integer(head_dim_field, 2),
        eps=checkpoint.number("rms_norm_eps"),
        gamma=checkpoint.integer("block_size", 1),
        mask_token=mask_token,
    )


def refuse_other_options(checkpoint: DrafterCheckpoint) -> None:
    """Refuse activations and layer kinds that DeepSpec's Qwen3 drafters do not have.

    Raises:
        UnsupportedModel: Naming the field.
    """
    activation = checkpoint.config.get("hidden_act", "silu")
    if activation != "silu":
        raise UnsupportedModel(f"{checkpoint.config_file}, hidden_act = {activation!r}: this version runs silu")
    others = set(checkpoint.config.get("layer_types") or ()) - {"full_attention"}
    if others:
        raise UnsupportedModel(
            f"{checkpoint.config_file}, layer_types holds {sorted(others)}: DeepSpec's draft layers are full_attention"
        )


def read_rope(checkpoint: DrafterCheckpoint, shape: Shape) -> tuple[Tensor, float]:
    """Return inverse frequencies and the factor on cosine and sine, by transformers' own rule for the config.

    Raises:
        CheckpointError: If the RoPE fields are missing or contradict each other.
        UnsupportedModel: If the frequencies would depend on the length of the text.
    """
    from transformers import Qwen3Config
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    given: dict[str, Any] = {f: checkpoint.config[f] for f in _ROPE_FIELDS if checkpoint.config.get(f) is not None}
    scaling = given.get("rope_parameters") or given.get("rope_scaling") or {}
    if not {"rope_parameters", "rope_theta"} & set(given) or not isinstance(scaling, dict):
        raise CheckpointError(f"{checkpoint.config_file}, rope_parameters: missing, and there is no rope_theta either")
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in _FIXED_ROPE:
        raise UnsupportedModel(
            f"{checkpoint.config_file}, rope_type = {kind!r}: this version runs {', '.join(_FIXED_ROPE)}"
        )
    try:
        config = Qwen3Config(
            hidden_size=shape.hidden, num_attention_heads=shape.heads, head_dim=shape.head_dim, **given
        )
        rotary = Qwen3RotaryEmbedding(config)
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{checkpoint.config_file}, rope_parameters: {error}") from error
    return rotary.inv_freq.to(checkpoint.device, torch.float32), float(rotary.attention_scaling)


def _read_layer(checkpoint: DrafterCheckpoint, index: int, shape: Shape) -> Layer:
    hidden, d = shape.hidden, shape.head_dim
    inner = checkpoint.integer("intermediate_size", 1)
    rows = {"q": shape.heads * d, "k": shape.kv_heads * d, "v": shape.kv_heads * d}
    biased = checkpoint.flag("attention_bias", default=False)

    def read(name: str, *size: int) -> Tensor:
        return checkpoint.tensor(f"layers.{index}.{name}", size)

    qkv_biases = [read(f"self_attn.{x}_proj.bias", n) for x, n in rows.items()] if biased else None
    return Layer(
        qkv=torch.cat([read(f"self_attn.{x}_proj.weight", n, hidden) for x, n in rows.items()]),
        qkv_bias=None if qkv_biases is None else torch.cat(qkv_biases),
        q_norm=read("self_attn.q_norm.weight", d),
        k_norm=read("self_attn.k_norm.weight", d),
        output=read("self_attn.o_proj.weight", hidden, shape.heads * d),
        output_bias=read("self_attn.o_proj.bias", hidden) if biased else None,
        input_norm=read("input_layernorm.weight", hidden),
        post_norm=read("post_attention_layernorm.weight", hidden),
        gate_up=torch.cat([read(f"mlp.{x}_proj.weight", inner, hidden) for x in ("gate", "up")]),
        down=read("mlp.down_proj.weight", hidden, inner),
    )
