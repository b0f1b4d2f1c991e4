"""From a drafter's name to a loaded drafter: which family it belongs to.

A source is a folder, a hub name or the word `ngram`, and may carry options behind commas:
`ngram,gamma=7,max-ngram=3`, `Qwen/Qwen3-0.6B,gamma=5`, `org/drafter,sample-from-anchor=true`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dspark_calib.drafters.causal_lm_loading import DEFAULT_GAMMA, load_causal_lm
from dspark_calib.drafters.checkpoint import (
    DrafterCheckpoint,
    find_checkpoint,
    hash_files,
    read_checkpoint,
    read_json,
    weight_files,
)
from dspark_calib.drafters.drafter import Drafter
from dspark_calib.drafters.dspark import build_qwen3_dspark
from dspark_calib.drafters.eagle3_weights import build_gemma4_eagle3, build_qwen3_eagle3
from dspark_calib.drafters.gemma4_weights import build_gemma4_dspark
from dspark_calib.drafters.ngram import DEFAULT_GAMMA as DEFAULT_NGRAM_GAMMA
from dspark_calib.drafters.ngram import DEFAULT_MAX_NGRAM, NgramDrafter
from dspark_calib.drafters.speculators import build_speculators
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.drafters.zlab import build_zlab_dflash
from dspark_calib.errors import CheckpointError, UnsupportedModel
from dspark_calib.trace.provenance import Checkpoint

NGRAM = "ngram"
BUILDERS: dict[str, Callable[[DrafterCheckpoint, TargetParts], Drafter]] = {
    "Qwen3DSparkModel": build_qwen3_dspark,
    "Gemma4DSparkModel": build_gemma4_dspark,
    "Qwen3Eagle3Model": build_qwen3_eagle3,
    "Eagle3DraftModel": build_qwen3_eagle3,
    "Gemma4Eagle3Model": build_gemma4_eagle3,
    "DFlashDraftModel": build_zlab_dflash,
}
_CAUSAL_LM_ENDINGS = ("ForCausalLM", "LMHeadModel")


def load_drafter(
    source: str, target: TargetParts, *, target_tokenizer: Any = None, trust_remote_code: bool = False
) -> tuple[Drafter, Checkpoint]:
    """Load a drafter for a target, on the target's device and in its dtype.

    Args:
        source: Folder, hub name or `ngram`, with options.
        target: See `target_parts`.
        target_tokenizer: The target's; needed where the drafter is a causal LM.
        trust_remote_code: Whether code that lies with a causal LM may run; no other family runs any.

    Returns:
        The drafter, and its name and content hash for the provenance.

    Raises:
        CheckpointError: If the checkpoint is missing, damaged or belongs to another target, or an option does
            not fit.
        UnsupportedModel: If it is of a family this version does not run.
    """
    name, options = parse_source(source)
    if name == NGRAM:
        return _build_ngram(source, options, target)
    folder = find_checkpoint(name)
    config = read_json(folder / "config.json")
    architectures = _architectures(config)
    if "speculators_model_type" not in config and any(a.endswith(_CAUSAL_LM_ENDINGS) for a in architectures):
        return _load_causal_lm(source, folder, options, target, target_tokenizer, trust_remote_code=trust_remote_code)
    build = _choose_builder(config, architectures, str(folder / "config.json"))
    checkpoint = read_checkpoint(name, target.device, target.dtype)
    identity = Checkpoint(name=source, content_hash=checkpoint.content_hash)
    return build(_apply_options(checkpoint, options, source), target), identity


def parse_source(source: str) -> tuple[str, dict[str, str]]:
    """Split a source into name and options; a folder whose name has a comma is taken whole.

    Raises:
        CheckpointError: If an option has no value.

    >>> parse_source("ngram,gamma=7,max-ngram=3")
    ('ngram', {'gamma': '7', 'max-ngram': '3'})
    """
    if Path(source).is_dir():
        return source, {}
    name, *given = source.split(",")
    options = {}
    for option in given:
        key, equals, value = option.partition("=")
        if not equals or not value:
            raise CheckpointError(f"--drafter {source}: {option!r} is no option; options are written name=value")
        options[key.strip()] = value.strip()
    return name, options


def _architectures(config: Mapping[str, Any]) -> list[str]:
    found = config.get("architectures")
    return [str(a) for a in found] if isinstance(found, list) else []


def _choose_builder(
    config: Mapping[str, Any], architectures: list[str], where: str
) -> Callable[[DrafterCheckpoint, TargetParts], Drafter]:
    if "speculators_model_type" in config:
        return build_speculators
    for architecture in architectures:
        if architecture in BUILDERS:
            return BUILDERS[architecture]
    raise UnsupportedModel(
        f"{where}, architectures = {architectures!r}: this version runs {', '.join(BUILDERS)}, speculators-format "
        "dspark and dflash, causal language models, and ngram"
    )


def _apply_options(checkpoint: DrafterCheckpoint, options: Mapping[str, str], source: str) -> DrafterCheckpoint:
    """Answer what a speculators export leaves open; other checkpoints take no options."""
    is_speculators = "speculators_model_type" in checkpoint.config
    _refuse_unknown(options, ("sample-from-anchor",) if is_speculators else (), source)
    if "sample-from-anchor" not in options:
        return checkpoint
    answer = options["sample-from-anchor"]
    if answer not in ("true", "false"):
        raise CheckpointError(f"--drafter {source}, sample-from-anchor = {answer}: expected true or false")
    saved = checkpoint.config.get("sample_from_anchor")
    if saved is not None and saved is not (answer == "true"):
        raise CheckpointError(f"{checkpoint.config_file}, sample_from_anchor = {saved}: --drafter says {answer}")
    return replace(checkpoint, config={**checkpoint.config, "sample_from_anchor": answer == "true"})


def _build_ngram(source: str, options: Mapping[str, str], target: TargetParts) -> tuple[Drafter, Checkpoint]:
    _refuse_unknown(options, ("gamma", "max-ngram", "min-ngram"), source)
    gamma = _whole_number(options, "gamma", DEFAULT_NGRAM_GAMMA, source)
    longest = _whole_number(options, "max-ngram", DEFAULT_MAX_NGRAM, source)
    shortest = _whole_number(options, "min-ngram", 1, source)
    if shortest > longest:
        raise CheckpointError(f"--drafter {source}, min-ngram = {shortest}: larger than max-ngram = {longest}")
    drafter = NgramDrafter(vocab_size=target.vocab_size, gamma=gamma, max_ngram=longest, min_ngram=shortest)
    rule = f"{NGRAM},gamma={gamma},max-ngram={longest},min-ngram={shortest}"
    return drafter, Checkpoint(name=rule, content_hash=None)


def _load_causal_lm(
    source: str,
    folder: Path,
    options: Mapping[str, str],
    target: TargetParts,
    target_tokenizer: Any,
    *,
    trust_remote_code: bool,
) -> tuple[Drafter, Checkpoint]:
    _refuse_unknown(options, ("gamma",), source)
    if target_tokenizer is None:
        raise ValueError("load_drafter needs target_tokenizer to compare with a causal LM's")
    gamma = _whole_number(options, "gamma", DEFAULT_GAMMA, source)
    drafter = load_causal_lm(folder, source, target, target_tokenizer, gamma=gamma, trust_remote_code=trust_remote_code)
    return drafter, Checkpoint(name=source, content_hash=hash_files(weight_files(folder)))


def _refuse_unknown(options: Mapping[str, str], known: tuple[str, ...], source: str) -> None:
    for name in options:
        if name not in known:
            hint = f"it takes {', '.join(known)}" if known else "it takes none"
            raise CheckpointError(f"--drafter {source}: unknown option {name!r} for this kind of drafter; {hint}")


def _whole_number(options: Mapping[str, str], name: str, default: int, source: str) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise CheckpointError(f"--drafter {source}, {name} = {text}: expected a whole number ≥ 1")
    return int(text)
