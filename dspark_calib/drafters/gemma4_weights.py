"""From a DeepSpec checkpoint of Gemma4 shape to its layers, every field and tensor checked."""

from typing import Any

import torch
from torch import Tensor

from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.dspark import DSparkDrafter, check_is_drafter_of
from dspark_calib.drafters.gemma4_backbone import Gemma4Backbone, Gemma4Layer
from dspark_calib.drafters.heads import read_confidence_head, read_markov_head
from dspark_calib.drafters.qwen3_backbone import Shape
from dspark_calib.drafters.qwen3_weights import own_or_target, read_shape
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.errors import CheckpointError, UnsupportedModel

_ACTIVATION = "gelu_pytorch_tanh"


def build_gemma4_dspark(checkpoint: DrafterCheckpoint, target: TargetParts) -> DSparkDrafter:
    """Build DeepSpec's `Gemma4DSparkModel` (DSpark or DFlash) for its target.

    Raises:
        CheckpointError: If the checkpoint is damaged or belongs to another target.
        UnsupportedModel: If it holds a kind of head or option this version does not run.
    """
    layer_ids = checkpoint.layer_ids("target_layer_ids")
    check_is_drafter_of(checkpoint, target, layer_ids)
    shape = read_gemma4_shape(checkpoint, target)
    markov = read_markov_head(checkpoint, target.hidden_size, target.vocab_size)
    return DSparkDrafter(
        gamma=shape.gamma,
        vocab_size=target.vocab_size,
        target_layer_ids=layer_ids,
        backbone=_read_backbone(checkpoint, target, shape, len(layer_ids)),
        markov=markov,
        confidence=read_confidence_head(checkpoint, target.hidden_size, markov),
    )


def _read_backbone(checkpoint: DrafterCheckpoint, target: TargetParts, shape: Shape, features: int) -> Gemma4Backbone:
    hidden = (shape.hidden,)
    count = checkpoint.integer("num_hidden_layers", 1)
    return Gemma4Backbone(
        shape=shape,
        layers=tuple(read_gemma4_layer(checkpoint, i, shape, width=shape.hidden) for i in range(count)),
        fuse=checkpoint.tensor("fc.weight", (shape.hidden, features * shape.hidden)),
        hidden_norm=checkpoint.tensor("hidden_norm.weight", hidden),
        norm=checkpoint.tensor("norm.weight", hidden),
        embed_tokens=own_or_target(checkpoint, "embed_tokens.weight", target.embed_tokens),
        lm_head=own_or_target(checkpoint, "lm_head.weight", target.lm_head),
        inverse_frequencies=read_gemma4_rope(checkpoint, shape),
        softcap=read_softcap(checkpoint),
    )


def read_gemma4_shape(checkpoint: DrafterCheckpoint, target: TargetParts) -> Shape:
    """Read the sizes DeepSpec takes from a Gemma4 text config: those of its *global* attention layers.

    Raises:
        CheckpointError: If a size is missing or the heads do not divide.
        UnsupportedModel: If the config asks for an activation, experts or gates DeepSpec's drafters do not have.
    """
    _refuse_other_options(checkpoint)
    shared = checkpoint.flag("attention_k_eq_v", default=False)
    return read_shape(
        checkpoint,
        target,
        kv_heads_field="num_global_key_value_heads" if shared else "num_key_value_heads",
        head_dim_field="global_head_dim",
    )


def _refuse_other_options(checkpoint: DrafterCheckpoint) -> None:
    wanted: dict[str, tuple[Any, Any]] = {
        "hidden_activation": (_ACTIVATION, _ACTIVATION),
        "enable_moe_block": (False, False),
        "hidden_size_per_layer_input": (0, 0),
    }
    for field, (value, default) in wanted.items():
        found = checkpoint.config.get(field, default)
        if found != value:
            raise UnsupportedModel(
                f"{checkpoint.config_file}, {field} = {found!r}: DeepSpec's Gemma4 drafters have {value!r}"
            )
    others = set(checkpoint.config.get("layer_types") or ()) - {"full_attention"}
    if others:
        raise UnsupportedModel(
            f"{checkpoint.config_file}, layer_types holds {sorted(others)}: DeepSpec's draft layers are full_attention"
        )


def read_softcap(checkpoint: DrafterCheckpoint) -> float | None:
    """Read final_logit_softcapping; None where the logits are not capped."""
    if checkpoint.config.get("final_logit_softcapping") is None:
        return None
    return checkpoint.number("final_logit_softcapping")


def read_gemma4_rope(checkpoint: DrafterCheckpoint, shape: Shape) -> Tensor:
    """Return the inverse frequencies of global attention, float32 [d/2].

    θ^(-2i/d) for the first ⌊factor · d / 2⌋ pairs and 0 for the rest: those stay unrotated
    (transformers' `proportional` rule).

    Raises:
        CheckpointError: If rope_parameters does not describe full_attention.
        UnsupportedModel: If its rope_type is another one.
    """
    where = f"{checkpoint.config_file}, rope_parameters"
    parameters = checkpoint.config.get("rope_parameters")
    full = parameters.get("full_attention") if isinstance(parameters, dict) else None
    if not isinstance(full, dict) or not isinstance(full.get("rope_theta"), (int, float)):
        raise CheckpointError(f"{where}: expected full_attention with rope_theta")
    kind = full.get("rope_type", "proportional")
    if kind not in ("proportional", "default"):
        raise UnsupportedModel(f"{where}, rope_type = {kind!r}: this version runs proportional and default")
    share = float(full.get("partial_rotary_factor", 1.0)) if kind == "proportional" else 1.0
    d = shape.head_dim
    rotated = int(share * d // 2)
    exponents = torch.arange(rotated, dtype=torch.float32, device=checkpoint.device) * 2 / d
    frequencies = torch.zeros(d // 2, dtype=torch.float32, device=checkpoint.device)
    frequencies[:rotated] = float(full["rope_theta"]) ** -exponents / float(full.get("factor", 1.0))
    return frequencies


def read_gemma4_layer(checkpoint: DrafterCheckpoint, index: int, shape: Shape, width: int) -> Gemma4Layer:
    """Read one layer whose attention takes inputs of this width (H, or 2H in Eagle3)."""
    hidden, d = shape.hidden, shape.head_dim
    inner = checkpoint.integer("intermediate_size", 1)
    biased = checkpoint.flag("attention_bias", default=False)
    shared = checkpoint.flag("attention_k_eq_v", default=False)

    def read(name: str, *size: int) -> Tensor:
        return checkpoint.tensor(f"layers.{index}.{name}", size)

    def bias(name: str, size: int) -> Tensor | None:
        return read(f"self_attn.{name}_proj.bias", size) if biased else None

    return Gemma4Layer(
        head_dim=d,
        eps=shape.eps,
        query=read("self_attn.q_proj.weight", shape.heads * d, width),
        key=read("self_attn.k_proj.weight", shape.kv_heads * d, width),
        value=None if shared else read("self_attn.v_proj.weight", shape.kv_heads * d, width),
        query_bias=bias("q", shape.heads * d),
        key_bias=bias("k", shape.kv_heads * d),
        value_bias=None if shared else bias("v", shape.kv_heads * d),
        output_bias=bias("o", hidden),
        q_norm=read("self_attn.q_norm.weight", d),
        k_norm=read("self_attn.k_norm.weight", d),
        output=read("self_attn.o_proj.weight", hidden, shape.heads * d),
        input_norm=read("input_layernorm.weight", hidden),
        post_attention_norm=read("post_attention_layernorm.weight", hidden),
        pre_feedforward_norm=read("pre_feedforward_layernorm.weight", hidden),
        post_feedforward_norm=read("post_feedforward_layernorm.weight", hidden),
        gate_up=torch.cat([read(f"mlp.{x}_proj.weight", inner, hidden) for x in ("gate", "up")]),
        down=read("mlp.down_proj.weight", hidden, inner),
        scalar=read("layer_scalar", 1),
    )
