"""Reading a drafter's checkpoint: config.json and weights from a folder or the hub, nothing executed.

Weights come from safetensors, or from a PyTorch file read with `weights_only=True`; code inside a model
repository is never run. What a family does with the tensors is not here.
"""

import hashlib
import json
import math
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dspark_calib.errors import CheckpointError

_SAFETENSORS = ("model.safetensors.index.json", "model.safetensors")
_PICKLED = ("pytorch_model.bin.index.json", "pytorch_model.bin")
_HUB_FILES = ("*.json", "*.txt", "tokenizer.model")


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterCheckpoint:
    """A drafter as it lies on disk.

    Attributes:
        name: Hub name or folder, as the user gave it.
        folder: Where the files are.
        config: The content of config.json.
        tensors: Every weight by name, on the CPU, as saved.
        content_hash: sha256 of the weight files, in name order.
        device: Where `tensor` puts weights.
        dtype: What `tensor` casts them to.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    content_hash: str
    device: torch.device
    dtype: torch.dtype

    @property
    def config_file(self) -> str:
        """The path of config.json, for messages."""
        return str(self.folder / "config.json")

    def integer(self, field: str, minimum: int, default: int | None = None) -> int:
        """Return a whole number of the config.

        Raises:
            CheckpointError: If it is missing (without a default), not a whole number or below the minimum.
        """
        value = self.config.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise CheckpointError(f"{self.config_file}, {field} = {value!r}: expected a whole number ≥ {minimum}")
        return value

    def number(self, field: str) -> float:
        """Return a positive finite number of the config.

        Raises:
            CheckpointError: If it is missing or something else.
        """
        value = self.config.get(field)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise CheckpointError(f"{self.config_file}, {field} = {value!r}: expected a positive number")
        return float(value)

    def flag(self, field: str, default: bool) -> bool:
        """Return a true-or-false field of the config.

        Raises:
            CheckpointError: If it is something else.
        """
        value = self.config.get(field, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{self.config_file}, {field} = {value!r}: expected true or false")
        return value

    def layer_ids(self, field: str) -> tuple[int, ...]:
        """Return a list of target layer ids of the config.

        Raises:
            CheckpointError: If it is missing, empty or holds anything but whole numbers.
        """
        value = self.config.get(field)
        if not isinstance(value, list) or not value or not all(type(i) is int for i in value):
            raise CheckpointError(f"{self.config_file}, {field} = {value!r}: expected a list of layer numbers")
        return tuple(value)

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return one weight on the device, after checking its shape and its values.

        Raises:
            CheckpointError: If it is missing, has another shape, is not floating point or holds NaN or infinity.
        """
        value = self.tensors.get(name)
        where = f"{self.folder}, tensor {name}"
        if value is None:
            raise CheckpointError(f"{where}: missing from the weight files; download the checkpoint again")
        if tuple(value.shape) != shape:
            raise CheckpointError(f"{where}: shape {list(value.shape)}, but config.json makes it {list(shape)}")
        if not value.is_floating_point() or value.itemsize < 2:
            raise CheckpointError(f"{where}: type {value.dtype} is not read; use the checkpoint before quantisation")
        if not bool(torch.isfinite(value).all()):
            raise CheckpointError(f"{where}: holds NaN or infinity; the file is damaged or training diverged")
        return value.to(self.device, self.dtype)


def read_checkpoint(
    source: str, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> DrafterCheckpoint:
    """Read a drafter from a folder, or from the hub by name.

    Args:
        source: Folder, or a hub name such as `deepseek-ai/dspark_qwen3_4b_block7`.
        device: Where the model will run.
        dtype: What it will compute in.

    Raises:
        CheckpointError: If a file is missing, truncated or not what its name says.
    """
    folder = find_checkpoint(source)
    config = read_json(folder / "config.json")
    files = weight_files(folder)
    tensors: dict[str, Tensor] = {}
    for file in files:
        tensors |= _load_safetensors(file) if file.suffix == ".safetensors" else _load_pickled(file)
    return DrafterCheckpoint(
        name=source,
        folder=folder,
        config=config,
        tensors=tensors,
        content_hash=hash_files(files),
        device=torch.device(device),
        dtype=dtype,
    )


def find_checkpoint(source: str) -> Path:
    """Return the folder of a checkpoint, downloaded first where the source is a hub name.

    Raises:
        CheckpointError: If there is neither such a folder nor such a name.
    """
    return Path(source) if Path(source).is_dir() else _download(source)


def hash_files(files: Iterable[Path]) -> str:
    """Return the sha256 (hexadecimal) of the files' bytes, one after another in name order."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.name):
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 22):
                digest.update(chunk)
    return digest.hexdigest()


def _download(source: str) -> Path:
    from huggingface_hub import snapshot_download

    if source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise CheckpointError(f"{source}: no such folder")
    try:
        folder = Path(snapshot_download(source, allow_patterns=[*_HUB_FILES, "*.safetensors"]))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(source, allow_patterns=[*_HUB_FILES, "pytorch_model*.bin"]))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{source}: neither a folder nor a checkpoint the hub gives: {reason}") from error
    return folder


def weight_files(folder: Path) -> list[Path]:
    """Return the weight files of a checkpoint: safetensors before pickles, an index before a single file.

    Raises:
        CheckpointError: If there are none, or an index names one that is not there.
    """
    for name in (*_SAFETENSORS, *_PICKLED):
        path = folder / name
        if path.is_file():
            return _indexed_files(path) if path.suffix == ".json" else [path]
    raise CheckpointError(f"{folder}: no model.safetensors (or pytorch_model.bin); download the checkpoint again")


def _indexed_files(index: Path) -> list[Path]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}, weight_map: expected tensor names and their files")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if Path(name).name != name or not (index.parent / name).is_file():
            raise CheckpointError(f"{index}, weight_map: names the file {name}, which is not there")
    return [index.parent / name for name in names]


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a checkpoint.

    Raises:
        CheckpointError: If the file is missing or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: missing; a checkpoint is a folder with config.json and weights") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not readable as JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: expected a JSON object")
    return content


def _load_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: truncated or not a safetensors file ({error}); download it again") from error
    return tensors


def _load_pickled(path: Path) -> dict[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError) as error:
        raise CheckpointError(f"{path}: truncated, or not plain weights; use safetensors") from error
    if not isinstance(content, dict) or not all(isinstance(t, Tensor) for t in content.values()):
        raise CheckpointError(f"{path}: expected tensors by name; use safetensors")
    return content
