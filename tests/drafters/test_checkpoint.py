"""Checkpoint folders as they should not be: each gets one message naming the file."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from dspark_calib.drafters.checkpoint import read_checkpoint
from dspark_calib.errors import CheckpointError

TENSORS = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small checkpoint of one safetensors file."""
    (tmp_path / "config.json").write_text(json.dumps({"block_size": 7, "ids": [1, 2]}))
    save_file(TENSORS, tmp_path / "model.safetensors")
    return tmp_path


def test_tensors_come_in_the_dtype_asked_for(folder: Path) -> None:
    """Weights saved in bfloat16 or float32 are read as the target computes."""
    checkpoint = read_checkpoint(str(folder), "cpu", torch.bfloat16)
    assert checkpoint.tensor("a", (2, 3)).dtype == torch.bfloat16
    assert checkpoint.tensor("a", (2, 3)).float().equal(TENSORS["a"])
    assert checkpoint.integer("block_size", 1) == 7
    assert checkpoint.layer_ids("ids") == (1, 2)


def test_shards_equal_one_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An index with two shards gives the tensors of the single file."""
    sharded = tmp_path_factory.mktemp("sharded")
    (sharded / "config.json").write_text("{}")
    for name, tensor in TENSORS.items():
        save_file({name: tensor}, sharded / f"{name}.safetensors")
    index = {"weight_map": {name: f"{name}.safetensors" for name in TENSORS}}
    (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
    one, two = read_checkpoint(str(folder)), read_checkpoint(str(sharded))
    assert one.tensors.keys() == two.tensors.keys()
    assert all(one.tensors[n].equal(two.tensors[n]) for n in TENSORS)


def test_pytorch_file_of_plain_weights_is_read(folder: Path) -> None:
    """Without safetensors, pytorch_model.bin is read."""
    (folder / "model.safetensors").unlink()
    torch.save(TENSORS, folder / "pytorch_model.bin")
    assert read_checkpoint(str(folder)).tensors["a"].equal(TENSORS["a"])


class Bomb:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.putenv, ("BOMB", "1")


def test_code_inside_a_pytorch_file_is_not_run(folder: Path) -> None:
    """A pickle that would run code is refused."""
    (folder / "model.safetensors").unlink()
    torch.save({"a": Bomb()}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin.*safetensors"):
        read_checkpoint(str(folder))


def truncate(path: Path) -> None:
    """Cut a file in half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json: missing"),
        (lambda f: truncate(f / "config.json"), "config.json: not readable as JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json: expected a JSON object"),
        (lambda f: (f / "model.safetensors").unlink(), r"no model\.safetensors"),
        (lambda f: truncate(f / "model.safetensors"), r"model\.safetensors: truncated"),
        (lambda f: (f / "model.safetensors").write_bytes(b""), r"model\.safetensors: truncated"),
        (
            lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "gone.safetensors"}}'),
            r"gone\.safetensors, which is not there",
        ),
        (
            lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../a.safetensors"}}'),
            r"weight_map: names the file",
        ),
    ],
    ids=[
        "no config",
        "half a config",
        "a list",
        "no weights",
        "half the weights",
        "empty weights",
        "no shard",
        "outside",
    ],
)
def test_damage_is_named(folder: Path, damage: object, message: str) -> None:
    """A missing or truncated file is named with what is wrong."""
    damage(folder)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(str(folder))


def test_a_path_that_is_no_folder_is_not_looked_up_on_the_hub() -> None:
    """A name that is neither a folder nor `owner/name` is refused without a download."""
    with pytest.raises(CheckpointError, match="no-such-folder"):
        read_checkpoint("./no-such-folder")


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.zeros(3, 2), r"shape \[3, 2\], but config.json makes it \[2, 3\]"),
        (torch.zeros(2, 3, dtype=torch.int32), "type torch.int32 is not read"),
        (torch.zeros(2, 3, dtype=torch.float8_e4m3fn), "before quantisation"),
        (torch.full((2, 3), float("inf")), "NaN or infinity"),
    ],
    ids=["shape", "whole numbers", "quantised", "infinite"],
)
def test_tensors_are_checked_when_used(folder: Path, tensor: torch.Tensor, message: str) -> None:
    """Shape, type and finite values of a weight are checked."""
    save_file({"a": tensor}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(str(folder)).tensor("a", (2, 3))
