"""DSpark and DFlash checkpoints in the format of vllm-project/speculators.

What differs from DeepSpec's layout: the draft layers' config is nested (`transformer_layer_config`, defaults
left out), layer ids count `hidden_states` entries (one more than DeepSpec's), the draft vocabulary may be
pruned, layers may slide, and `sample_from_anchor` says whether the anchor's slot predicts. Where DSpark
exports leave it out, vLLM and llama.cpp read false and the library itself true: it must be said.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from dspark_calib.drafters.anchor_slot import AnchorSlotDropped
from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.drafter import Drafter
from dspark_calib.drafters.dspark import Backbone, DSparkDrafter, check_is_drafter_of
from dspark_calib.drafters.heads import RnnMixer, read_confidence_head, read_markov_head
from dspark_calib.drafters.pruned_vocabulary import PrunedDrafter, read_target_ids
from dspark_calib.drafters.qwen3_weights import read_qwen3_backbone
from dspark_calib.drafters.sliding import set_windows
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.errors import CheckpointError, UnsupportedModel

FORMATS = ("dspark", "dflash")
_NESTED = "transformer_layer_config"
_AUX = "aux_hidden_state_layer_ids"


def build_speculators(checkpoint: DrafterCheckpoint, target: TargetParts) -> Drafter:
    """Build a speculators-format DSpark or DFlash drafter for its target.

    Raises:
        CheckpointError: If the checkpoint is damaged, belongs to another target or does not say what its first
            slot does.
        UnsupportedModel: If it is of another algorithm or holds an option this version does not run.
    """
    algorithm = checkpoint.config.get("speculators_model_type")
    if algorithm not in FORMATS:
        raise UnsupportedModel(
            f"{checkpoint.config_file}, speculators_model_type = {algorithm!r}: this version runs {', '.join(FORMATS)}"
        )
    from_anchor = _samples_from_anchor(checkpoint, algorithm)
    flat = _flatten(checkpoint, with_heads=algorithm == "dspark")
    layer_ids = flat.layer_ids("target_layer_ids")
    check_is_drafter_of(flat, target, layer_ids)
    draft_size = checkpoint.integer("draft_vocab_size", 1, default=target.vocab_size)
    target_ids = None if draft_size == target.vocab_size else read_target_ids(checkpoint, draft_size, target.vocab_size)
    drafter = _build_drafter(flat, _with_draft_head(target, target_ids), layer_ids, from_anchor=from_anchor)
    if target_ids is None:
        return drafter
    return PrunedDrafter(inner=drafter, target_ids=target_ids, vocab_size=target.vocab_size)


def _samples_from_anchor(checkpoint: DrafterCheckpoint, algorithm: str) -> bool:
    if "sample_from_anchor" not in checkpoint.config and algorithm == "dspark":
        raise CheckpointError(
            f"{checkpoint.config_file}, sample_from_anchor: missing, and engines and trainer disagree on what that "
            f"means. If the drafter was trained to draft block_size tokens, say --drafter "
            f"'{checkpoint.name},sample-from-anchor=true'; if block_size - 1 (older exports; what vLLM assumes), "
            "sample-from-anchor=false"
        )
    return checkpoint.flag("sample_from_anchor", default=False)


def _flatten(checkpoint: DrafterCheckpoint, *, with_heads: bool) -> DrafterCheckpoint:
    """Return the checkpoint with a config in DeepSpec's flat layout; layer kinds are read apart."""
    nested = _fill_defaults(checkpoint)
    aux = checkpoint.layer_ids(_AUX)
    fields = ("block_size", "mask_token_id", "sliding_window_non_causal")
    own = {name: checkpoint.config[name] for name in fields if name in checkpoint.config}
    heads: dict[str, Any] = {"markov_rank": 0, "enable_confidence_head": False}
    if with_heads:  # the library's own defaults
        defaults = {"markov_rank": 256, "markov_head_type": "vanilla"}
        defaults |= {"enable_confidence_head": True, "confidence_head_with_markov": True}
        heads = {name: checkpoint.config.get(name, value) for name, value in defaults.items()}
    layers = {"target_layer_ids": [i - 1 for i in aux], "sliding_kinds": nested.get("layer_types"), "layer_types": None}
    return replace(checkpoint, config={**nested, **own, **heads, **layers})


def _fill_defaults(checkpoint: DrafterCheckpoint) -> dict[str, Any]:
    """Return the nested config with the fields that transformers leaves out because they are its defaults."""
    from transformers import CONFIG_MAPPING

    nested = checkpoint.config.get(_NESTED)
    if not isinstance(nested, dict):
        raise CheckpointError(f"{checkpoint.config_file}, {_NESTED}: missing; it describes the draft layers")
    kind = nested.get("model_type", "qwen3")
    if kind not in CONFIG_MAPPING:
        raise UnsupportedModel(f"{checkpoint.config_file}, {_NESTED}.model_type = {kind!r}: unknown to transformers")
    try:
        filled: dict[str, Any] = CONFIG_MAPPING[kind](**nested).to_dict()
    except (TypeError, ValueError, KeyError) as error:
        raise CheckpointError(f"{checkpoint.config_file}, {_NESTED}: {error}") from error
    if filled.get("head_dim") is None:
        filled["head_dim"] = filled["hidden_size"] // filled["num_attention_heads"]
    rope = filled.get("rope_parameters")
    if isinstance(rope, dict) and "sliding_attention" in rope:
        filled["rope_parameters"] = rope["sliding_attention"]
    return filled


def _with_draft_head(target: TargetParts, target_ids: Tensor | None) -> TargetParts:
    """Return the target with the rows of its vocabulary projection that the draft vocabulary keeps."""
    if target_ids is None:
        return target
    return replace(target, lm_head=target.lm_head[target_ids.to(target.lm_head.device)])


def _build_drafter(
    flat: DrafterCheckpoint, target: TargetParts, layer_ids: tuple[int, ...], *, from_anchor: bool
) -> DSparkDrafter:
    full = read_qwen3_backbone(flat, target, len(layer_ids))
    causal = not flat.flag("sliding_window_non_causal", default=False)
    kinds = replace(flat, config={**flat.config, "layer_types": flat.config["sliding_kinds"]})
    backbone: Backbone = set_windows(full, kinds, per_slot=False, causal=causal)
    markov = read_markov_head(flat, target.hidden_size, target.vocab_size, target.lm_head.shape[0])
    if not from_anchor:
        if markov is not None and isinstance(markov.mixer, RnnMixer):
            raise UnsupportedModel(
                f"{flat.config_file}, markov_head_type = 'rnn' with sample_from_anchor = false: whether the unused "
                "slot moves the recurrent state is not defined; this version does not guess"
            )
        flat.integer("block_size", 2)
        backbone = AnchorSlotDropped(inner=backbone)
    return DSparkDrafter(
        gamma=full.shape.gamma - (0 if from_anchor else 1),
        vocab_size=int(target.lm_head.shape[0]),
        target_layer_ids=layer_ids,
        backbone=backbone,
        markov=markov,
        confidence=read_confidence_head(flat, target.hidden_size, markov),
    )
