"""The target's files: what is read from them, what is never run, what is said when they are amiss."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from disk_pair import STOP, save_target

from dspark_calib.collection.target import cache_keyword, choose_device, describe_target, find_target, load_target
from dspark_calib.errors import CheckpointError, UnsupportedModel


def edit(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_stop_tokens_are_the_generation_configs_then_the_tokenizers(tmp_path: Path) -> None:
    """A list keeps its order; without a generation config the tokenizer's end token stops."""
    target = save_target(tmp_path / "t")
    edit(target / "generation_config.json", eos_token_id=[7, STOP])
    described = describe_target(find_target(str(target)))
    assert described.stop_token_ids == (7, STOP)
    assert (described.max_length, described.vocab_size, described.hidden_size, described.num_layers) == (
        256,
        260,
        16,
        3,
    )
    (target / "generation_config.json").unlink()
    assert describe_target(find_target(str(target))).stop_token_ids == (STOP,)


def test_the_hash_is_that_of_the_weights(tmp_path: Path) -> None:
    """Other weights under the same name give another hash, the same weights the same."""
    a, b, c = (save_target(tmp_path / name, seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    hashes = [describe_target(find_target(str(folder))).checkpoint.content_hash for folder in (a, b, c)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_code_beside_a_model_is_not_run(tmp_path: Path) -> None:
    """A model that only its own code can read is refused, with the option that would allow it."""
    target, marker = save_target(tmp_path / "t"), tmp_path / "ran"
    edit(target / "config.json", model_type="custom", auto_map={"AutoConfig": "code.Config"})
    (target / "code.py").write_text(f"open({str(marker)!r}, 'w')\n")
    with pytest.raises(UnsupportedModel, match="--trust-remote-code"):
        describe_target(find_target(str(target)))
    assert not marker.exists()


class Payload:
    """Runs a command where a pickle is read carelessly."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def test_a_pickle_with_a_program_in_it_is_not_run(tmp_path: Path) -> None:
    """Weights in PyTorch's format are read as weights only."""
    target, marker = save_target(tmp_path / "t"), tmp_path / "ran"
    (target / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Payload(marker)}, target / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="damaged"):
        load_target(find_target(str(target)), "cpu")
    assert not marker.exists()


def test_missing_files_are_named(tmp_path: Path) -> None:
    """No folder, no config, no weights, no GGUF."""
    empty, bare = tmp_path / "empty", save_target(tmp_path / "bare")
    empty.mkdir()
    (bare / "model.safetensors").unlink()
    for name, said in (
        (tmp_path / "none", "no such folder"),
        (empty, "config.json"),
        (tmp_path / "x.gguf", "no such file"),
    ):
        with pytest.raises(CheckpointError, match=said):
            find_target(str(name))
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        describe_target(find_target(str(bare)))
    with pytest.raises(CheckpointError, match="bare"):
        load_target(find_target(str(bare)), "cpu")


def test_device_and_dtype_are_checked(tmp_path: Path) -> None:
    """float32 on the CPU unless told otherwise; words that mean nothing are refused with the option's name."""
    files = find_target(str(save_target(tmp_path / "t")))
    assert load_target(files, "cpu").dtype == torch.float32
    assert load_target(files, "cpu", "bfloat16").dtype == torch.bfloat16
    with pytest.raises(UnsupportedModel, match="--dtype int8"):
        load_target(files, "cpu", "int8")
    with pytest.raises(UnsupportedModel, match="--device warp"):
        choose_device("warp")


def test_the_cache_has_the_name_the_model_uses() -> None:
    """transformers 5.24 renamed the argument."""

    class Old:
        def forward(self, input_ids: Any, past_key_values: Any = None) -> None:
            """Stand in."""

    class New:
        def forward(self, input_ids: Any, cache: Any = None) -> None:
            """Stand in."""

    assert (cache_keyword(Old()), cache_keyword(New())) == ("past_key_values", "cache")
