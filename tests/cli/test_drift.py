"""The drift command: exit codes, JSON, and following a stream."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from dspark_calib.trace import open_trace, write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds
from dspark_calib_cli import app as cli


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reference, the same traffic again, and harder traffic."""
    folder = tmp_path_factory.mktemp("drift")
    for name, seed, mean in (("reference", 0, 1.7), ("same", 1, 1.7), ("harder", 2, 0.5)):
        rounds = synthetic_rounds(
            np.random.default_rng(seed),
            prompts=120,
            rounds_per_prompt=30,
            temperatures=[1.0, 1.0, 1.0],
            logit_mean=mean,
            first_prompt=1000 * seed,
        )
        write_trace(folder / name, synthetic_provenance(3), [rounds])
    (folder / "two.json").write_text('{"temperatures": [1.0, 2.0]}', encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in the folder, as a user does."""
    monkeypatch.chdir(folder)


def jsonl(trace: Path) -> str:
    """Return the rounds of a trace as an engine would log them."""
    rounds = open_trace(trace).read()
    prompts = rounds.prompt_id.decode()
    lines = (
        json.dumps({"confidence_logits": z, "accepted": a, "prompt_id": p})
        for z, a, p in zip(rounds.confidence_logits.tolist(), rounds.accepted.tolist(), prompts, strict=True)
    )
    return "".join(f"{line}\n" for line in lines)


def test_the_same_and_harder_traffic(capsys: pytest.CaptureFixture[str]) -> None:
    """0 and "no drift", 1 and what moved; the advice stands beside both."""
    assert cli.run(["drift", "reference", "same"]) == 0
    assert "outcome: no drift" in capsys.readouterr().out
    assert cli.run(["drift", "reference", "harder", "--format", "json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert "acceptance" in result["moved"]
    assert result["advice"]["action"] in {"keep", "refit", "shorter_draft", "no_draft"}


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["reference"], "either a TRACE or --follow"),
        (["reference", "same", "--follow", "x"], "either a TRACE or --follow"),
        (["absent", "same"], "absent"),
        (["reference", "--follow", "absent.jsonl"], "absent.jsonl: cannot be read"),
        (["reference", "same", "--calibration", "absent.json"], "absent.json"),
        (["reference", "same", "--calibration", "two.json"], "2 temperatures, reference has blocks of γ = 3"),
        (["reference", "--follow", "x", "--calibration", "two.json"], "2 temperatures, reference has blocks of γ = 3"),
    ],
)
def test_data_errors_exit_2(arguments: list[str], culprit: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the culprit."""
    assert cli.run(["drift", *arguments]) == 2
    assert culprit in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(("source", "exit_code"), [("same", 0), ("harder", 1)])
def test_a_stream_from_stdin(
    source: str, exit_code: int, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line every 100 rounds; harder traffic stops with the alarm, the same runs to the end."""
    monkeypatch.setattr("sys.stdin", io.StringIO(jsonl(folder / source)))
    assert cli.run(["drift", "reference", "--follow", "-"]) == exit_code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("100 rounds, ")
    assert ("DRIFTED" in lines[-1]) == (exit_code == 1)


def test_rounds_without_prompt_ids_are_warned_about_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DeepSpec's records name no prompt; that is said, once."""
    monkeypatch.setattr("sys.stdin", io.StringIO('{"logits": [1, 2, 3], "labels": [1, 1, 0]}\n' * 300))
    cli.run(["drift", "reference", "--follow", "-"])
    assert capsys.readouterr().err.count("rounds name no prompt") == 1


def test_a_broken_line_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The number of the line stands in the message."""
    monkeypatch.setattr("sys.stdin", io.StringIO('{"confidence_logits": [1, 2, 3], "accepted": 1}\n{"a": 1}\n'))
    assert cli.run(["drift", "reference", "--follow", "-"]) == 2
    assert "line 2: expected confidence_logits and accepted" in capsys.readouterr().err.replace("\n", " ")


def test_ctrl_c_ends_following_quietly(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped at the end of a file that may grow: the windows so far, exit code 0, no traceback."""

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    path = tmp_path / "live.jsonl"
    path.write_text(jsonl(folder / "same"))
    assert cli.run(["drift", "reference", "--follow", str(path), "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert len([json.loads(line) for line in captured.out.splitlines()]) == 36
    assert "no drift was shown so far" in captured.err
