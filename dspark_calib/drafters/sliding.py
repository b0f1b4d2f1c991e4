"""Sliding draft layers: from a config's layer_types to windows on a backbone's layers."""

from dataclasses import replace

from dspark_calib.drafters.attention import Window
from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.qwen3_backbone import Qwen3Backbone
from dspark_calib.errors import CheckpointError, UnsupportedModel

_KINDS = {"full_attention", "sliding_attention"}


def set_windows(
    backbone: Qwen3Backbone, checkpoint: DrafterCheckpoint, *, per_slot: bool, causal: bool
) -> Qwen3Backbone:
    """Return the backbone with a window on every layer that layer_types calls sliding_attention.

    Args:
        backbone: Read as if every layer were full.
        checkpoint: Has layer_types and sliding_window.
        per_slot: See `Window`.
        causal: See `Window`.

    Raises:
        CheckpointError: If layer_types has another number of layers or sliding_window is missing.
        UnsupportedModel: If a layer is of another kind.
    """
    kinds = checkpoint.config.get("layer_types") or ["full_attention"] * len(backbone.layers)
    if not isinstance(kinds, list) or len(kinds) != len(backbone.layers):
        raise CheckpointError(
            f"{checkpoint.config_file}, layer_types = {kinds!r}: expected {len(backbone.layers)} kinds"
        )
    others = set(kinds) - _KINDS
    if others:
        raise UnsupportedModel(
            f"{checkpoint.config_file}, layer_types holds {sorted(others)}: this version runs {sorted(_KINDS)}"
        )
    if "sliding_attention" not in kinds:
        return backbone
    window = Window(size=checkpoint.integer("sliding_window", 1), per_slot=per_slot, causal=causal)
    layers = zip(backbone.layers, kinds, strict=True)
    return replace(
        backbone,
        layers=tuple(replace(layer, window=window if kind == "sliding_attention" else None) for layer, kind in layers),
    )
