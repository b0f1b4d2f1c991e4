"""z-lab's DFlash checkpoints (`DFlashDraftModel`): γ = block - 1, embeddings and head of the target, no confidence.

The repository's own code (`auto_map`) is never run. Source: z-lab/dflash, `dflash/model.py`; the scales and
the cap are those that engines read from `dflash_config`.
"""

from dataclasses import replace

from dspark_calib.drafters.anchor_slot import AnchorSlotDropped
from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.dspark import DSparkDrafter, check_is_drafter_of
from dspark_calib.drafters.qwen3_weights import read_qwen3_backbone
from dspark_calib.drafters.sliding import set_windows
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.errors import CheckpointError, UnsupportedModel

_OPTIONS = "dflash_config"


def build_zlab_dflash(checkpoint: DrafterCheckpoint, target: TargetParts) -> DSparkDrafter:
    """Build a z-lab DFlash drafter for its target.

    Raises:
        CheckpointError: If the checkpoint is damaged or belongs to another target.
        UnsupportedModel: If it holds an option this version does not run.
    """
    options = _read_options(checkpoint)
    flat = _flatten(checkpoint, options)
    layer_ids = options.layer_ids(f"{_OPTIONS}.target_layer_ids")
    check_is_drafter_of(flat, target, layer_ids)
    backbone = read_qwen3_backbone(flat, target, len(layer_ids))
    scale = _factor(options, "input_embedding_scale")
    if scale is not None:
        backbone = replace(backbone, embed_tokens=backbone.embed_tokens * scale)
    multiplier, softcap = _factor(options, "output_multiplier"), _factor(options, "final_logit_softcapping")
    if multiplier is not None and softcap is not None:
        raise UnsupportedModel(
            f"{checkpoint.config_file}, {_OPTIONS}: has output_multiplier and final_logit_softcapping; which comes "
            "first is not documented, so this version runs one of them only"
        )
    return DSparkDrafter(
        gamma=backbone.shape.gamma - 1,
        vocab_size=target.vocab_size,
        target_layer_ids=layer_ids,
        backbone=AnchorSlotDropped(
            inner=set_windows(backbone, checkpoint, per_slot=True, causal=False),
            multiplier=multiplier or 1.0,
            softcap=softcap,
        ),
        markov=None,
        confidence=None,
    )


def _read_options(checkpoint: DrafterCheckpoint) -> DrafterCheckpoint:
    """Return the checkpoint with the content of dflash_config as its config, keys named in full for messages."""
    options = checkpoint.config.get(_OPTIONS)
    if not isinstance(options, dict):
        raise CheckpointError(
            f"{checkpoint.config_file}, {_OPTIONS}: missing; it names the mask token and the target's layers"
        )
    return replace(checkpoint, config={f"{_OPTIONS}.{name}": value for name, value in options.items()})


def _flatten(checkpoint: DrafterCheckpoint, options: DrafterCheckpoint) -> DrafterCheckpoint:
    """Return the checkpoint with DeepSpec's names for block and mask token; layer kinds are read apart."""
    block = options.config.get(f"{_OPTIONS}.block_size", checkpoint.config.get("block_size"))
    given = {
        "block_size": block,
        "mask_token_id": options.integer(f"{_OPTIONS}.mask_token_id", 0),
        "layer_types": None,
    }
    flat = replace(checkpoint, config={**checkpoint.config, **given})
    flat.integer("block_size", 2)
    return flat


def _factor(options: DrafterCheckpoint, name: str) -> float | None:
    field = f"{_OPTIONS}.{name}"
    return options.number(field) if options.config.get(field) is not None else None
