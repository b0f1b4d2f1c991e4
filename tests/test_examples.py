"""The example files do what they say, on the demo pair or on recorded traces."""

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
TRACES = ROOT / "tests" / "data" / "traces"
TARGET = EXAMPLES / "demo" / ".cache" / "target"

needs_target = pytest.mark.skipif(not TARGET.is_dir(), reason="the demo's target is not unpacked; make demo does it")


def load(name: str) -> ModuleType:
    """Import an example by its file."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@needs_target
def test_the_whole_path_ends_in_an_engine_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Collection, fit, report, gate and export follow one another and give one temperature a position."""
    setting = load("whole_path").run(tmp_path, prompts_per_domain=2, max_new_tokens=16)
    line = next(text for text in setting.splitlines() if "TEMPERATURE" in text)
    assert len(line.partition("=")[2].split(",")) == 7
    assert (tmp_path / "report" / "report.html").is_file()
    assert json.loads((tmp_path / "report" / "report.json").read_text())["schema"] == "dspark-calib/report/1"
    assert "gate: inconclusive, exit code 3" in capsys.readouterr().out


def test_sglang_shards_become_a_table_for_sglang(tmp_path: Path) -> None:
    """Rounds of a recorded trace, written as SGLang's shards, come back as a table with one T a position."""
    import torch

    from dspark_calib.survival import prefix_labels
    from dspark_calib.trace import open_trace

    rounds = open_trace(TRACES / "demo").read()
    labels = prefix_labels(rounds.accepted, rounds.gamma).astype("float32")
    shards = []
    for i, rows in enumerate((slice(0, 500), slice(500, 1000))):
        shards.append(tmp_path / f"sts.{i}.pt")
        tensors = {"logits": rounds.confidence_logits[rows], "prefix_mask": labels[rows]}
        torch.save({name: torch.from_numpy(array.copy()) for name, array in tensors.items()}, shards[-1])
    table = json.loads(load("import_sglang_shards").calibrate_shards(shards, tmp_path))
    assert len(table["temperatures"]) == 7
    assert table["num_samples"] == 1000


@needs_target
def test_three_drafters_stand_on_one_axis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DSpark, DFlash and prompt lookup are measured on the same responses and shown together."""
    load("compare_drafters").compare(tmp_path, prompts=2, max_new_tokens=16)
    shown = [line for line in capsys.readouterr().out.splitlines() if "τ = " in line]
    assert len(shown) == 3
    assert (tmp_path / "report" / "report.html").is_file()


def test_policies_are_compared_on_a_measured_curve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The replay runs each policy at each load and recommends one."""
    shutil.copytree(TRACES / "demo-all", tmp_path / "trace-all")
    load("choose_policy").compare_policies(tmp_path / "trace-all", EXAMPLES / "sps" / "curve.json")
    out = capsys.readouterr().out
    assert {"fixed", "threshold:0.5", "algorithm1"} <= set(out.split())
    assert "temperatures, γ = " in out
