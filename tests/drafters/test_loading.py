"""From a name to a drafter: which family, which options, and what is refused."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tiny_pairs import GAMMA, V, tiny_target
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from dspark_calib.drafters.causal_lm import CausalLMDrafter
from dspark_calib.drafters.eagle3 import Eagle3Drafter
from dspark_calib.drafters.loading import load_drafter, parse_source
from dspark_calib.drafters.ngram import NgramDrafter
from dspark_calib.drafters.target_parts import TargetParts, target_parts
from dspark_calib.errors import CheckpointError, UnsupportedModel

WORDS = ["a", "b", "c", "d", "e"]


@pytest.fixture(scope="module")
def target() -> TargetParts:
    """The tiny target."""
    return target_parts(tiny_target(), "tiny-target")


def word_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    """Splits at spaces, one id a word."""
    core = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0]))
    core.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core)


def save_causal_lm(folder: Path, words: list[str], **changes: Any) -> Path:
    """A tiny Llama with its tokenizer."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=32,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    word_tokenizer(words).save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(saved | changes))
    return folder


def write_checkpoint(folder: Path, config: dict[str, Any], tensors: dict[str, torch.Tensor] | None = None) -> Path:
    """A checkpoint of the usual two files."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors or {"x": torch.zeros(1)}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("ngram", ("ngram", {})),
        ("ngram,gamma=7,max-ngram=3", ("ngram", {"gamma": "7", "max-ngram": "3"})),
        ("Qwen/Qwen3-0.6B, gamma=5", ("Qwen/Qwen3-0.6B", {"gamma": "5"})),
    ],
)
def test_a_source_is_a_name_with_options(source: str, expected: tuple[str, dict[str, str]]) -> None:
    """Options stand behind commas, written name=value."""
    assert parse_source(source) == expected


def test_a_folder_with_a_comma_is_taken_whole(tmp_path: Path) -> None:
    """A folder that exists under the whole source has no options."""
    (tmp_path / "a,gamma=3").mkdir()
    assert parse_source(str(tmp_path / "a,gamma=3")) == (str(tmp_path / "a,gamma=3"), {})


def test_ngram_needs_no_files_and_names_its_rule(target: TargetParts) -> None:
    """The provenance of prompt lookup is its rule in full, without a hash."""
    drafter, identity = load_drafter("ngram,gamma=3", target)
    assert drafter == NgramDrafter(vocab_size=V, gamma=3, max_ngram=2, min_ngram=1)
    assert (identity.name, identity.content_hash) == ("ngram,gamma=3,max-ngram=2,min-ngram=1", None)


def test_a_causal_lm_is_found_by_its_architecture(tmp_path: Path, target: TargetParts) -> None:
    """A folder with a ...ForCausalLM and the target's tokens drafts γ tokens, 5 unless told; the hash is the files'."""
    folder = str(save_causal_lm(tmp_path, WORDS))
    drafter, identity = load_drafter(f"{folder},gamma=3", target, target_tokenizer=word_tokenizer(WORDS))
    assert isinstance(drafter, CausalLMDrafter)
    assert (drafter.gamma, drafter.vocab_size) == (3, V)
    assert identity.content_hash is not None
    again, _ = load_drafter(folder, target, target_tokenizer=word_tokenizer(WORDS))
    assert again.gamma == 5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_a_causal_lm_runs_in_the_targets_dtype(tmp_path: Path, target: TargetParts, dtype: torch.dtype) -> None:
    """The check of the architecture is made in float32; then weights are the target's dtype and RoPE stays exact."""
    half = replace(target, embed_tokens=target.embed_tokens.to(dtype))
    folder = save_causal_lm(tmp_path, WORDS)
    drafter, _ = load_drafter(str(folder), half, target_tokenizer=word_tokenizer(WORDS))
    assert isinstance(drafter, CausalLMDrafter)
    assert drafter._model.dtype == dtype
    assert drafter._model.model.rotary_emb.inv_freq.dtype == torch.float32


def test_another_tokenizer_is_refused(tmp_path: Path, target: TargetParts) -> None:
    """The message names the first token that differs, in both models, and the remedy."""
    folder = str(save_causal_lm(tmp_path, ["a", "b", "x", "d", "e"]))
    with pytest.raises(CheckpointError, match=r"token 2 is 'x', but 'c' in tiny-target.*target's family"):
        load_drafter(folder, target, target_tokenizer=word_tokenizer(WORDS))


def test_equal_tokens_cut_differently_are_refused(tmp_path: Path, target: TargetParts) -> None:
    """The same vocabulary with other merges is another tokenizer."""
    letters = {c: i for i, c in enumerate([*ByteLevel.alphabet(), "de"])}
    tokenizers = []
    for merges in ([], [("d", "e")]):
        core = Tokenizer(BPE(letters, merges))
        core.pre_tokenizer = ByteLevel()
        tokenizers.append(PreTrainedTokenizerFast(tokenizer_object=core))
    folder = save_causal_lm(tmp_path, WORDS)
    tokenizers[0].save_pretrained(folder)
    with pytest.raises(CheckpointError, match="cuts text differently"):
        load_drafter(str(folder), target, target_tokenizer=tokenizers[1])


def test_repository_code_is_never_run_unasked(tmp_path: Path, target: TargetParts) -> None:
    """A model that needs its own code is refused with the flag that would allow it, and the code does not run."""
    folder = save_causal_lm(
        tmp_path, WORDS, model_type="homemade", architectures=["HomemadeForCausalLM"],
        auto_map={"AutoConfig": "homemade.Config", "AutoModelForCausalLM": "homemade.Model"},
    )  # fmt: skip
    marker = tmp_path / "ran"
    (folder / "homemade.py").write_text(f"open({str(marker)!r}, 'w')")
    with pytest.raises(UnsupportedModel, match="--trust-remote-code"):
        load_drafter(str(folder), target, target_tokenizer=word_tokenizer(WORDS))
    assert not marker.exists()


class Payload:
    """Runs a command where a pickle is read carelessly."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def test_a_pickle_with_a_program_in_it_is_not_run(tmp_path: Path, target: TargetParts) -> None:
    """A draft model's weights in PyTorch's format are read as weights only; anything else is one clear error."""
    folder, marker = save_causal_lm(tmp_path, WORDS), tmp_path / "ran"
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Payload(marker)}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="damaged"):
        load_drafter(str(folder), target, target_tokenizer=word_tokenizer(WORDS))
    assert not marker.exists()


def test_missing_weights_of_a_causal_lm_are_refused(tmp_path: Path, target: TargetParts) -> None:
    """Weights that transformers would fill with random numbers are an error."""
    folder = save_causal_lm(tmp_path, WORDS)
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match="up_proj"):
        load_drafter(str(folder), target, target_tokenizer=word_tokenizer(WORDS))


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"architectures": ["DFlash2DraftModel"]}, r"architectures = \['DFlash2DraftModel'\].*Qwen3DSparkModel"),
        ({"architectures": ["LlamaModel"]}, "causal language models"),
        ({}, r"architectures = \[\]"),
        ({"speculators_model_type": "peagle", "architectures": ["XForCausalLM"]}, "peagle"),
    ],
)
def test_unknown_architectures_are_named(
    tmp_path: Path, target: TargetParts, config: dict[str, Any], says: str
) -> None:
    """The message shows what config.json says and lists what runs."""
    with pytest.raises(UnsupportedModel, match=says):
        load_drafter(str(write_checkpoint(tmp_path / "d", config)), target)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("ngram,gamma", "'gamma' is no option"),
        ("ngram,gamma=0", "gamma = 0"),
        ("ngram,gamma=x", "gamma = x"),
        ("ngram,depth=3", "unknown option 'depth'.*gamma, max-ngram, min-ngram"),
        ("ngram,min-ngram=3", "min-ngram = 3"),
        ("nowhere", "nowhere: no such folder"),
        ("./nowhere/at-all,gamma=3", "no such folder"),
    ],
)
def test_bad_sources_are_named(target: TargetParts, source: str, says: str) -> None:
    """One line that names the option, or the folder that is not there."""
    with pytest.raises(CheckpointError, match=says):
        load_drafter(source, target)


def eagle_config() -> dict[str, Any]:
    """The tiny Eagle3's config."""
    return {
        "architectures": ["Eagle3DraftModel"], "hidden_size": 12, "vocab_size": V, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 10, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}, "num_hidden_layers": 1,
        "target_layer_ids": [0, 1, 2, 3, 5], "ttt_length": GAMMA,
    }  # fmt: skip


def test_eagle3_knows_the_targets_stop_tokens(tmp_path: Path, target: TargetParts) -> None:
    """Loaded from a folder under its older name, Eagle3 ends blocks at the target's own stop tokens."""
    from literal_models import random_weights

    weights = random_weights(5, eagle_config(), gemma=False, eagle=True, vocab=V)
    drafter, _ = load_drafter(str(write_checkpoint(tmp_path / "d", eagle_config(), weights)), target)
    assert isinstance(drafter, Eagle3Drafter)
    assert drafter.stop_tokens == target.stop_tokens == (4,)


def test_other_checkpoints_take_no_options(tmp_path: Path, target: TargetParts) -> None:
    """γ of a trained block drafter is the checkpoint's; asking for another is refused."""
    folder = write_checkpoint(tmp_path / "d", eagle_config())
    with pytest.raises(CheckpointError, match=r"unknown option 'gamma'.*it takes none"):
        load_drafter(f"{folder},gamma=3", target)


def test_the_open_question_of_speculators_is_answered_on_the_command_line(tmp_path: Path, target: TargetParts) -> None:
    """sample-from-anchor=… stands in for the missing field, and may not contradict a present one."""
    from literal_models import random_weights

    sizes = {name: value for name, value in eagle_config().items() if name not in ("architectures", "ttt_length")}
    config = {
        "speculators_model_type": "dspark", "transformer_layer_config": sizes | {"model_type": "qwen3"},
        "draft_vocab_size": V, "block_size": 3, "mask_token_id": 0, "markov_rank": 0, "enable_confidence_head": False,
        "aux_hidden_state_layer_ids": [1, 3],
    }  # fmt: skip
    weights = random_weights(5, sizes | {"target_layer_ids": [0, 2]}, gemma=False, eagle=False, vocab=V)
    folder = str(write_checkpoint(tmp_path / "d", config, weights))
    with pytest.raises(CheckpointError, match=r"sample_from_anchor: missing.*,sample-from-anchor=true"):
        load_drafter(folder, target)
    assert load_drafter(f"{folder},sample-from-anchor=true", target)[0].gamma == 3
    assert load_drafter(f"{folder},sample-from-anchor=false", target)[0].gamma == 2
    with pytest.raises(CheckpointError, match="expected true or false"):
        load_drafter(f"{folder},sample-from-anchor=yes", target)
    write_checkpoint(tmp_path / "d", config | {"sample_from_anchor": True}, weights)
    with pytest.raises(CheckpointError, match="sample_from_anchor = True"):
        load_drafter(f"{folder},sample-from-anchor=false", target)
