"""The target: where its files are, how it tokenises and stops, and the model itself."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_calib.drafters.checkpoint import hash_files
from dspark_calib.drafters.pretrained import (
    first_line,
    readable_failures,
    refuse_missing_weights,
    without_progress_bars,
)
from dspark_calib.errors import CheckpointError, UnsupportedModel
from dspark_calib.trace.provenance import Checkpoint

_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model")
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFiles:
    """A target on disk.

    Attributes:
        name: As the user gave it: hub name, folder or GGUF file.
        folder: Where the files are.
        gguf: File name inside the folder, for a GGUF; else None.
        trust_remote_code: Whether code that lies with the model may run.
    """

    name: str
    folder: Path
    gguf: str | None
    trust_remote_code: bool

    def weight_files(self) -> list[Path]:
        """Return the files the content hash covers.

        Raises:
            CheckpointError: If there are none.
        """
        if self.gguf is not None:
            return [self.folder / self.gguf]
        for pattern in _WEIGHTS:
            if files := sorted(self.folder.glob(pattern)):
                return files
        raise CheckpointError(f"{self.folder}: no model.safetensors (or pytorch_model.bin); download the model again")

    @property
    def from_pretrained_arguments(self) -> dict[str, Any]:
        """What every `from_pretrained` of transformers is told."""
        arguments = {"trust_remote_code": self.trust_remote_code}
        return arguments if self.gguf is None else arguments | {"gguf_file": self.gguf}


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDescription:
    """What is known of a target without its weights in memory.

    Attributes:
        checkpoint: Name and content hash.
        tokenizer: A transformers tokenizer.
        stop_token_ids: Tokens that end a response, the generation config's (else the tokenizer's), main one first.
        max_length: Tokens of prompt and response the model takes; None where its config does not say.
        vocab_size: Rows of the embedding.
        hidden_size: H.
        num_layers: Decoder layers.
    """

    checkpoint: Checkpoint
    tokenizer: Any
    stop_token_ids: tuple[int, ...]
    max_length: int | None
    vocab_size: int
    hidden_size: int
    num_layers: int


def find_target(name: str, *, trust_remote_code: bool = False) -> TargetFiles:
    """Find a target's files: a folder, a GGUF file, or a hub name (downloaded on first use).

    Args:
        name: Folder, GGUF file or hub name.
        trust_remote_code: Whether code that lies with the model may run.

    Raises:
        CheckpointError: If there is no such thing.
    """
    path = Path(name)
    if path.suffix == ".gguf":
        if not path.is_file():
            raise CheckpointError(f"{name}: no such file")
        return TargetFiles(name=name, folder=path.parent, gguf=path.name, trust_remote_code=trust_remote_code)
    folder = path if path.is_dir() else _download(name, trust_remote_code=trust_remote_code)
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder / 'config.json'}: missing; a target is a folder with config.json and weights")
    return TargetFiles(name=name, folder=folder, gguf=None, trust_remote_code=trust_remote_code)


def describe_target(files: TargetFiles) -> TargetDescription:
    """Read tokenizer, stop tokens and sizes, and hash the weights.

    Raises:
        CheckpointError: If a file is missing or damaged.
        UnsupportedModel: If only code that lies with the model could read it.
    """
    from transformers import AutoConfig

    with readable_failures(files.name):
        config = AutoConfig.from_pretrained(files.folder, **files.from_pretrained_arguments)
    tokenizer = load_tokenizer(files)
    text_config = config.get_text_config()
    longest = getattr(text_config, "max_position_embeddings", None)
    return TargetDescription(
        checkpoint=Checkpoint(name=files.name, content_hash=hash_files(files.weight_files())),
        tokenizer=tokenizer,
        stop_token_ids=_stop_tokens(files, config, tokenizer),
        max_length=int(longest) if longest else None,
        vocab_size=int(text_config.vocab_size),
        hidden_size=int(text_config.hidden_size),
        num_layers=int(text_config.num_hidden_layers),
    )


def load_tokenizer(files: TargetFiles) -> Any:
    """Load the target's tokenizer.

    Raises:
        CheckpointError: If its files are missing or damaged.
        UnsupportedModel: If only code that lies with the model could read it.
    """
    from transformers import AutoTokenizer

    with readable_failures(files.name):
        return AutoTokenizer.from_pretrained(files.folder, **files.from_pretrained_arguments)


def load_target(files: TargetFiles, device: str = "auto", dtype: str = "auto") -> Any:
    """Load the model on its device, ready to run.

    Args:
        files: Where it is.
        device: `auto` (a CUDA device where there is one), or a torch device.
        dtype: `auto` (float32 on the CPU; elsewhere float16 if saved so, else bfloat16, as engines serve it),
            or one of `DTYPES`.

    Returns:
        A transformers causal LM in evaluation mode.

    Raises:
        CheckpointError: If the weights are missing, truncated or incomplete.
        UnsupportedModel: If it is no causal LM that transformers knows.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    place = choose_device(device)
    with readable_failures(files.name), without_progress_bars():
        config = AutoConfig.from_pretrained(files.folder, **files.from_pretrained_arguments)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            files.folder,
            dtype=_choose_dtype(dtype, place, config),
            output_loading_info=True,
            **files.from_pretrained_arguments,
        )
    model, loading = loaded
    refuse_missing_weights(files.name, loading)
    return model.to(torch.device(place)).eval()


def choose_device(device: str) -> str:
    """Return the device that `auto` stands for, or the one named.

    Raises:
        UnsupportedModel: If torch cannot use it.
    """
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UnsupportedModel(f"--device {device}: torch cannot use it ({reason}); try --device cpu") from error
    return device


def cache_keyword(model: Any) -> str:
    """Return what this model's forward calls its key-value cache: transformers renamed it in 5.24."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def _choose_dtype(dtype: str, device: str, config: Any) -> Any:
    import torch

    if dtype not in DTYPES:
        raise UnsupportedModel(f"--dtype {dtype}: expected one of {', '.join(DTYPES)}")
    if dtype != "auto":
        return getattr(torch, dtype)
    if device.startswith("cpu"):
        return torch.float32
    return torch.float16 if getattr(config, "dtype", None) == torch.float16 else torch.bfloat16


def _stop_tokens(files: TargetFiles, config: Any, tokenizer: Any) -> tuple[int, ...]:
    """Return the generation config's stop tokens, else the tokenizer's; a GGUF's stand in its config."""
    from transformers import GenerationConfig

    generation = files.folder / "generation_config.json"
    if files.gguf is not None:
        stop = config.eos_token_id
    else:
        stop = GenerationConfig.from_pretrained(files.folder).eos_token_id if generation.is_file() else None
    stop = tokenizer.eos_token_id if stop is None else stop
    if stop is None:
        return ()
    return tuple(int(token) for token in (stop if isinstance(stop, list | tuple) else [stop]))


def _download(name: str, *, trust_remote_code: bool) -> Path:
    from huggingface_hub import snapshot_download

    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise CheckpointError(f"{name}: no such folder")
    patterns = [*_HUB_FILES, *(["*.py"] if trust_remote_code else [])]
    try:
        folder = Path(snapshot_download(name, allow_patterns=patterns))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=[*patterns, "pytorch_model*.bin"]))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{name}: neither a folder nor a model the hub gives: {first_line(error)}") from error
    return folder
