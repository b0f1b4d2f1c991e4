"""The export command: what lands where, and what is refused."""

import json
from pathlib import Path

import pytest

from dspark_calib_cli import app as cli

BARE = '{"temperatures": [1.25, 0.5], "dataset": "math", "num_samples": 100}'


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in a folder with a bare calibration file."""
    (tmp_path / "calibration.json").write_text(BARE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_setting_goes_to_stdout_and_its_use_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """stdout can be piped into an environment file as it is."""
    assert cli.run(["export", "--engine", "deepinfer"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "DEEPINFER_USE_NEXTN_DECODE=2\nDEEPINFER_DFLASH_CONFIDENCE_HEAD_TEMPERATURE=1.25,0.5\n"
    assert "DEEPINFER_ENABLE_MTP_VARLEN" in captured.err


def test_a_file_is_written_checked_and_not_replaced(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--check reads back what was written; a second run refuses, or checks without writing; a wrong file is found."""
    command = ["export", "--engine", "sglang", "--out", "out/sts.json"]
    assert cli.run([*command, "--check"]) == 0
    path = inside / "out" / "sts.json"
    assert json.loads(path.read_text())["temperatures"] == [1.25, 0.5]
    assert cli.run(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert cli.run([*command, "--check"]) == 0
    assert "checked" in capsys.readouterr().err
    path.write_text('{"temperatures": [1.25, 0.6]}')
    assert cli.run([*command, "--check"]) == 2
    assert "position 2" in capsys.readouterr().err
    assert cli.run([*command, "--overwrite"]) == 0
    assert list((inside / "out").iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["--engine", "vllm"], "vLLM reads no temperatures"),
        (["--engine", "sglnag"], "unknown engine"),
        (["absent.json", "--engine", "sglang"], "absent.json"),
        (["--engine", "sglang", "--check"], "give it with --out"),
        (["--engine", "sglang", "--drafter", "./absent"], "absent"),
    ],
)
def test_refusals_exit_2_and_write_nothing(
    arguments: list[str], culprit: str, inside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, nothing on stdout, no file."""
    assert cli.run(["export", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert culprit in captured.err.replace("\n", " ")
    assert [path.name for path in inside.iterdir()] == ["calibration.json"]


def test_vllm_is_answered_even_without_a_calibration(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who asks for vLLM first learns that there is nothing to write."""
    (inside / "calibration.json").unlink()
    assert cli.run(["export", "--engine", "vllm"]) == 2
    assert "vLLM reads no temperatures" in capsys.readouterr().err


def test_an_identity_table_is_written_with_a_warning(inside: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1.0s are exported, and the warning says what they do."""
    (inside / "calibration.json").write_text('{"temperatures": [1, 1.0]}')
    assert cli.run(["export", "--engine", "env"]) == 0
    captured = capsys.readouterr()
    assert "=1.0,1.0\n" in captured.out
    assert "raw confidences" in captured.err


@pytest.mark.parametrize(("decision", "warned"), [("keep_identity", True), ("adopt", False)])
def test_temperatures_that_the_fit_advises_against_are_exported_with_a_warning(
    decision: str, warned: bool, inside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What did not help on held-out prompts is not put into service silently."""
    from dspark_calib.calibration import Calibration, write_calibration

    fitted = Calibration(temperatures=(1.25, 0.5), decision=decision, reason="no gain on held-out prompts")
    write_calibration(inside / "calibration.json", fitted, overwrite=True)
    assert cli.run(["export", "--engine", "env"]) == 0
    said = capsys.readouterr().err.replace("\n", " ")
    assert ("advises to keep T = 1 (no gain on held-out prompts)" in said) == warned


def test_a_foreign_drafter_is_refused_unless_allowed(
    inside: Path, demo_drafter: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The calibration names the hash it was fitted on; another checkpoint needs --allow-other-checkpoint."""
    from dspark_calib.calibration import Calibration, write_calibration
    from dspark_calib.trace import Checkpoint

    fitted = Calibration(temperatures=(1.25, 0.5), drafter=Checkpoint(name="d", content_hash="0" * 64))
    write_calibration(inside / "calibration.json", fitted, overwrite=True)
    command = ["export", "--engine", "env", "--drafter", str(demo_drafter)]
    assert cli.run(command) == 2
    assert "--allow-other-checkpoint" in capsys.readouterr().err
    assert cli.run([*command, "--allow-other-checkpoint"]) == 0
    assert "exported all the same" in capsys.readouterr().err.replace("\n", " ")


def test_json_carries_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """--format json holds text, temperatures and warnings."""
    assert cli.run(["export", "--engine", "shell", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["temperatures"] == [1.25, 0.5]
    assert "export DEEPINFER_USE_NEXTN_DECODE=2" in result["text"]
