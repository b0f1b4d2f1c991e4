"""`simulate` as people call it: outcomes, streams, exit codes and refusals."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dspark_calib.calibration.file import Calibration, write_calibration
from dspark_calib.trace import Checkpoint, Trace, loop_trace, write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds
from dspark_calib_cli.app import run

CURVE = "tokens,step_ms\n1,5\n8,5.5\n32,8\n64,14\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a trace of every anchor, one of loop anchors, a curve and a calibration."""
    rounds = synthetic_rounds(np.random.default_rng(0), prompts=12, rounds_per_prompt=30, temperatures=[1.5] * 3)
    left = rounds.prompt_length.astype(int) + 30 - rounds.anchor
    rounds = replace(
        rounds,
        response_length=np.full(len(rounds), 31, np.int32),
        accepted=np.minimum(rounds.accepted, left).astype(np.int16),
        observed=np.minimum(3, left).astype(np.int16),
        acceptance_probs=np.full((len(rounds), 3), 0.7, np.float32),
    )
    provenance = replace(
        synthetic_provenance(3), anchor_policy="all", drafter=Checkpoint(name="tiny", content_hash="abc")
    )
    trace = Trace.of(rounds, provenance)
    write_trace(tmp_path / "trace", provenance, [rounds])
    loop = loop_trace(trace)
    write_trace(tmp_path / "loop", loop.provenance, [loop.read()])
    (tmp_path / "sps.csv").write_text(CURVE)
    write_calibration(tmp_path / "cal.json", Calibration(temperatures=(1.5, 1.5, 1.5)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_json_is_the_record(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout carries one JSON object with every replay; warnings go to stderr."""
    code = run(
        ["simulate", "--sps", "sps.csv", "--calibration", "cal.json", "--concurrency", "1,16", "--format", "json"]
    )
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert code == 0
    assert result["schema"] == "dspark-calib/simulation/1"
    assert result["evaluation"] == "independent"
    cells = {(r["policy"], r["confidence"], r["concurrency"]) for r in result["replays"]}
    assert len(cells) == 4 * 3 * 2
    assert len(result["regrets"]) == 4 * 2 * 2
    assert [r["concurrency"] for r in result["recommendations"]] == [1, 16]
    assert result["best_under_sla"] is None
    assert "concurrency 16 is above the 12 responses" in " ".join(captured.err.split())


def test_text_recommends(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tables fit 80 columns and end with what to run."""
    arguments = ["simulate", "trace", "--sps", "sps.csv", "--policy", "fixed:2", "--policy", "threshold:0.5"]
    assert run([*arguments, "--concurrency", "4", "--min-user-speed", "10", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "Concurrency 4" in captured.out
    assert "At concurrency 4: " in captured.out
    assert "With at least 10 tokens/s for every user: the choice at concurrency 4." in captured.out
    assert max(map(len, captured.out.splitlines())) <= 80


def test_an_unreachable_speed_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody reaches the speed asked for, the answer says so and is no failure."""
    arguments = ["simulate", "--sps", "sps.csv", "--concurrency", "4", "--min-user-speed", "100000", "--quiet"]
    assert run(arguments) == 0
    assert "no lossless policy reaches it" in " ".join(capsys.readouterr().out.split())


def test_refit_writes_a_calibration(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--refit --out` writes temperatures that the next call takes, held out on the same trace."""
    arguments = ["simulate", "--sps", "sps.csv", "--policy", "algorithm1", "--concurrency", "4", "--quiet"]
    assert run([*arguments, "--refit", "--out", "policy.json"]) == 0
    assert "Fitted for algorithm1 at concurrency 4" in capsys.readouterr().out
    assert run([*arguments, "--calibration", "policy.json", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["evaluation"] == "out_of_fold"
    assert run([*arguments, "--refit", "--out", "policy.json"]) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["loop", "--policy", "algorithm1"], "Collect with --anchors all"),
        (["--policy", "fastest"], "no such policy"),
        (["--policy", "fixed:4"], "whole number in 0..3"),
        (["--policy", "threshold:2"], "number in [0, 1]"),
        (["--concurrency", "65"], "beyond the curve"),
        (["--concurrency", "1,x"], "whole numbers of at least 1"),
        (["--concurrency", "0"], "whole numbers of at least 1"),
        (["--calibration", "other.json"], "another drafter"),
        (["--calibration", "short.json"], "2 temperatures"),
        (["--calibration", "none.json"], "no such file"),
        (["--sps", "falling.csv"], "must rise strictly"),
        (["--sps", "zero.csv"], "positive, finite"),
        (["--out", "x.json"], "--refit"),
        (["elsewhere"], "no such trace"),
    ],
)
def test_bad_input_is_one_message(
    folder: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every mistake ends with exit code 2, its reason on stderr and nothing on stdout."""
    other = Calibration(temperatures=(1.5, 1.5, 1.5), drafter=Checkpoint(name="other", content_hash="def"))
    write_calibration(folder / "other.json", other)
    write_calibration(folder / "short.json", Calibration(temperatures=(1.5, 1.5)))
    (folder / "falling.csv").write_text("tokens,step_ms\n8,5\n4,6\n")
    (folder / "zero.csv").write_text("tokens,steps_per_second\n8,5\n16,0\n")
    base = [] if "--sps" in arguments else ["--sps", "sps.csv"]
    load = [] if "--concurrency" in arguments else ["--concurrency", "4"]
    assert run(["simulate", *arguments, *base, *load]) == 2
    captured = capsys.readouterr()
    assert says in " ".join(captured.err.replace("│", " ").split())
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_a_loop_trace_replays_full_verification(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a policy named, a loop trace is replayed at its own length."""
    assert run(["simulate", "loop", "--sps", "sps.csv", "--concurrency", "2", "--format", "json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {r["policy"] for r in result["replays"]} == {"fixed"}
    assert "were not tried" in result["recommendations"][0]["reasons"][1]
