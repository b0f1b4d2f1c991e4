"""From a drafter's name to a loaded drafter: which family a checkpoint belongs to."""

from collections.abc import Callable

from dspark_calib.drafters.checkpoint import DrafterCheckpoint, read_checkpoint
from dspark_calib.drafters.drafter import Drafter
from dspark_calib.drafters.dspark import build_qwen3_dspark
from dspark_calib.drafters.eagle3_weights import build_gemma4_eagle3, build_qwen3_eagle3
from dspark_calib.drafters.gemma4_weights import build_gemma4_dspark
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.errors import UnsupportedModel
from dspark_calib.trace.provenance import Checkpoint

BUILDERS: dict[str, Callable[[DrafterCheckpoint, TargetParts], Drafter]] = {
    "Qwen3DSparkModel": build_qwen3_dspark,
    "Gemma4DSparkModel": build_gemma4_dspark,
    "Qwen3Eagle3Model": build_qwen3_eagle3,
    "Eagle3DraftModel": build_qwen3_eagle3,
    "Gemma4Eagle3Model": build_gemma4_eagle3,
}


def load_drafter(source: str, target: TargetParts) -> tuple[Drafter, Checkpoint]:
    """Load a drafter for a target, on the target's device and in its dtype.

    Args:
        source: Folder or hub name.
        target: See `target_parts`.

    Returns:
        The drafter, and its name and content hash for the provenance.

    Raises:
        CheckpointError: If the checkpoint is missing, damaged or belongs to another target.
        UnsupportedModel: If it is of a family this version does not run.
    """
    checkpoint = read_checkpoint(source, target.device, target.dtype)
    architectures = checkpoint.config.get("architectures") or []
    for name in architectures:
        if name in BUILDERS:
            identity = Checkpoint(name=checkpoint.name, content_hash=checkpoint.content_hash)
            return BUILDERS[name](checkpoint, target), identity
    raise UnsupportedModel(
        f"{checkpoint.config_file}, architectures = {architectures!r}: this version runs {', '.join(BUILDERS)}"
    )
