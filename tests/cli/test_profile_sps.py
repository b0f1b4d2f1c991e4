"""`profile-sps` on a tiny target."""

import json
from pathlib import Path

import pytest

from dspark_calib.scheduling.curve_files import read_curve
from dspark_calib_cli.app import run

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama on disk."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("target")
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        vocab_size=64,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def profile(target: Path, out: Path, *more: str) -> int:
    """Run the command on a few small batches."""
    base = ["--batch-sizes", "4,1,4", "--context", "8", "--repeats", "2", "--device", "cpu", "--out", str(out)]
    return run(["profile-sps", "--target", str(target), *base, *more])


def test_the_curve_is_written_and_printed(target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout carries the points, the file the samples."""
    assert profile(target, tmp_path / "sps.json", "--format", "json") == 0
    printed = json.loads(capsys.readouterr().out)
    curve = read_curve(tmp_path / "sps.json")
    assert [p["tokens"] for p in printed["points"]] == curve.tokens.tolist() == [1, 4]
    assert curve.samples_ms is not None
    assert [len(samples) for samples in curve.samples_ms] == [2, 2]
    assert curve.conditions is not None
    assert curve.conditions.target == str(target)


def test_engine_layouts(target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file may be what an engine reads."""
    assert profile(target, tmp_path / "table.json", "--layout", "sglang") == 0
    assert set(json.loads((tmp_path / "table.json").read_text())) == {
        "sample_batch_tokens", "sample_steps_per_sec", "max_batch_tokens"
    }  # fmt: skip
    assert "steps/s" in capsys.readouterr().out


def test_an_existing_file_is_refused_before_measuring(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The refusal comes before the model is loaded."""
    (tmp_path / "sps.json").write_text("{}")
    assert profile(tmp_path / "no-such-target", tmp_path / "sps.json") == 2
    assert "--overwrite" in capsys.readouterr().err


@pytest.mark.parametrize("sizes", ["", "1,,2", "1,-2", "a"])
def test_wrong_batch_sizes(target: Path, tmp_path: Path, sizes: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes that are no whole numbers are a usage error."""
    assert run(["profile-sps", "--target", str(target), "--batch-sizes", sizes, "--out", str(tmp_path / "s")]) == 2
    assert "whole numbers" in " ".join(capsys.readouterr().err.replace("│", " ").split())
