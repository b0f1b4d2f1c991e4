"""The import command: rows accounted for, nothing half-written."""

import json
from pathlib import Path

import pytest

from dspark_calib.trace import open_trace
from dspark_calib_cli import app as cli

RECORDS = '{"logits": [1.5, -0.25], "labels": [1, 0]}\n{"logits": [NaN, 1], "labels": [0, 0]}\n'


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in a folder with a record file."""
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "records.jsonl").write_text(RECORDS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_records_become_a_trace_that_opens(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trace holds the kept rows, and its provenance the refused ones and the missing prompt ids."""
    assert cli.run(["import", "deepspec", "gsm8k/records.jsonl"]) == 0
    captured = capsys.readouterr()
    assert "1 of 2 rows kept, γ = 2" in captured.out
    assert "refused 1: logit not finite" in captured.out
    assert "blocks of 100 rounds" in captured.err.replace("\n", " ")
    trace = open_trace(inside / "trace")
    assert trace.num_rounds == 1
    assert trace.provenance.refused == {"logit not finite": 1}
    assert trace.read().dataset.decode() == ["gsm8k"]


def test_an_existing_trace_is_kept_unless_told(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second import is refused; --overwrite replaces."""
    command = ["import", "deepspec", "gsm8k/records.jsonl"]
    assert cli.run(command) == 0
    assert cli.run(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert cli.run([*command, "--overwrite", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["unknown", "gsm8k/records.jsonl"], "known are deepspec, sglang-shards"),
        (["deepspec", "absent.jsonl"], "absent.jsonl: cannot be read"),
        (["deepspec", "calibration.json"], "calibration.json"),
        (["sglang-server-info", "gsm8k/records.jsonl"], "not JSON"),
        (["vllm-metrics", "gsm8k/records.jsonl"], "neither a"),
        (["deepinfer", "gsm8k/records.jsonl"], "no DeepInfer"),
        (["deepspec", "gsm8k/records.jsonl", "--calibration", "calibration.json"], "only for sglang-server-info"),
    ],
)
def test_errors_leave_nothing_behind(
    arguments: list[str], culprit: str, inside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit 2, no trace folder and no temporary one."""
    (inside / "calibration.json").write_text('{"temperatures": [1.0, 2.0]}')
    assert cli.run(["import", *arguments]) == 2
    assert culprit in capsys.readouterr().err.replace("\n", " ")
    assert {path.name for path in inside.iterdir()} == {"gsm8k", "calibration.json"}


def test_counters_become_acceptance_json(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """vLLM counters make no trace but acceptance.json, with 1-based positions."""
    (inside / "metrics").write_text(
        'vllm:spec_decode_num_drafts_total{engine="0"} 10\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 8\n'
    )
    assert cli.run(["import", "vllm-metrics", "metrics", "--out", "counts", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == "counts/acceptance.json"
    body = json.loads((inside / "counts" / "acceptance.json").read_text())
    assert body["positions"] == [{"position": 1, "verified": 10, "accepted": 8}]
    assert cli.run(["import", "vllm-metrics", "metrics", "--out", "counts"]) == 2
    capsys.readouterr()
    for command in (["fit-sts", "counts"], ["gate", "counts", "--max-ece", "0.1"]):
        assert cli.run(command) == 2
        assert "acceptance counts and no rounds" in capsys.readouterr().err.replace("\n", " ")
