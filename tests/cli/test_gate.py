"""The gate command: exit codes, the configuration table, JSON, JUnit and GitHub from one result."""

import json
from pathlib import Path

import numpy as np
import pytest
from defusedxml import ElementTree as StrictET

from dspark_calib.calibration import fit_calibration, write_calibration
from dspark_calib.trace import open_trace, write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds
from dspark_calib_cli import app as cli


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two traces of the same 60 prompts with raw confidences that are off, one that is right, and a calibration."""
    folder = tmp_path_factory.mktemp("gate")
    for name, seed, temperature in (("trace", 0, 2.0), ("again", 1, 2.0), ("right", 2, 1.0)):
        rounds = synthetic_rounds(
            np.random.default_rng(seed), prompts=60, rounds_per_prompt=40, temperatures=np.full(3, temperature)
        )
        write_trace(folder / name, synthetic_provenance(3), [rounds])
    write_calibration(folder / "fitted.json", fit_calibration(open_trace(folder / "trace")))
    return folder


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in the folder, as a user does."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


def run_json(arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    """Run a command with --format json; return its exit code and what stdout carries."""
    code = cli.run([*arguments.split(), "--format", "json", "--quiet"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        ("gate --max-ece 0.02", 1),
        ("gate --max-ece 0.2", 0),
        ("gate --calibration fitted.json --max-ece 0.06", 0),
        ("gate right --max-ece 0.06 --min-auroc 0.6 --max-bias 0.05 --min-accepted-length 2", 0),
        ("gate right --max-ece 0.015", 3),
        ("gate right --max-ece 0.015 --inconclusive pass", 0),
        ("gate right --max-ece 0.015 --inconclusive fail", 1),
        ("gate right again --max-ece 0.2", 0),
        ("gate right --max-regression 0 --baseline trace", 0),
        ("gate trace --max-regression 0 --baseline right", 1),
        ("gate trace --calibration fitted.json --max-brier-increase 0.001", 0),
    ],
)
def test_exit_codes(arguments: str, exit_code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """0 passed, 1 failed, 3 open, on traces whose calibration is known; the table names outcome and positions."""
    assert cli.run(arguments.split()) == exit_code
    out = capsys.readouterr().out
    assert f"outcome: {['pass', 'fail', '', 'inconclusive'][exit_code]}" in out


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        ("gate", "nothing to judge"),
        ("gate absent --max-ece 0.1", "there is no such trace"),
        ("gate --max-ece 2", "--max-ece 2.0: expected a number from 0.0 to 1.0"),
        ("gate --max-regression 0", "needs --baseline"),
        ("gate --max-ece 0.1 --baseline trace", "only used by --max-regression"),
        ("gate --max-brier-increase 0", "give --calibration"),
        ("gate --max-regression 0 --baseline fitted.json", "not a report of schema"),
        ("gate --max-ece 0.1 --calibration absent.json", "absent.json"),
    ],
)
def test_data_errors_are_one_line_and_exit_2(arguments: str, culprit: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback; stdout stays empty."""
    assert cli.run(arguments.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert culprit in captured.err.replace("\n", " ")


def test_one_result_in_every_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON, JUnit, annotations and step summary tell the same outcome and number of checks."""
    summary, junit = tmp_path / "summary.md", tmp_path / "out" / "gate.xml"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code = cli.run(["gate", "--max-ece", "0.02", "--junit", str(junit), "--github", "--format", "json"])
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    suite = StrictET.parse(junit).getroot().find("testsuite")
    assert suite is not None
    assert code == result["exit_code"] == 1
    assert result["counts"]["fail"] == int(suite.get("failures", "0")) == captured.err.count("::error title=max-ece")
    assert int(suite.get("tests", "0")) == len(result["checks"]) == 3
    assert summary.read_text(encoding="utf-8").startswith("### ❌ dspark-calib gate: fail")


def test_the_configuration_table_gives_the_limits(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dspark-calib gate` runs with nothing after it where dspark-calib.toml says the rest; flags win."""
    (tmp_path / "dspark-calib.toml").write_text(
        f'[gate]\ntrace = ["{folder}/trace"]\nmax-ece = 0.02\njunit = "gate.xml"\ninconclusive = "fail"\n'
    )
    monkeypatch.chdir(tmp_path)
    assert cli.run(["gate"]) == 1
    assert (tmp_path / "gate.xml").is_file()
    assert cli.run(["gate", "--max-ece", "0.3"]) == 0
    (tmp_path / "dspark-calib.toml").write_text("[gate]\nmax_ece = 0.02\n")
    assert cli.run(["gate"]) == 2
    assert "max-ece" in capsys.readouterr().err


def test_groups_are_judged_beside_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """--by multiplies the checks, and Holm counts them all."""
    _, result = run_json("gate --max-ece 0.2 --by dataset", capsys)
    checks = result["checks"]
    assert isinstance(checks, list)
    assert {check["group"] for check in checks} == {"all", "synthetic"}
    assert result["multiplicity"] == {"method": "holm", "checks": 6, "alpha": 0.025}


def test_a_calibration_beside_the_trace_is_used(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """calibration.json is taken where it lies there, out of fold on its own trace; without it, raw is said."""
    monkeypatch.chdir(tmp_path)
    _, raw = run_json(f"gate {folder}/trace --max-ece 0.1", capsys)
    assert (raw["view"], raw["evaluation"]) == ("raw", None)
    (tmp_path / "calibration.json").write_text((folder / "fitted.json").read_text())
    _, judged = run_json(f"gate {folder}/trace --max-ece 0.1", capsys)
    assert (judged["view"], judged["evaluation"]) == ("calibrated", "out_of_fold")


def test_a_calibration_of_another_length_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """γ of table and trace must agree, and both are named."""
    path = tmp_path / "short.json"
    path.write_text('{"temperatures": [1.0, 1.5]}')
    assert cli.run(["gate", "--max-ece", "0.1", "--calibration", str(path)]) == 2
    assert "short.json" in capsys.readouterr().err.replace("\n", "")


def test_a_written_report_serves_as_the_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`report --json` carries the standard errors and floors that --baseline needs: same decision as from the trace."""
    report = tmp_path / "report"
    assert cli.run(["report", "right", "--json", "--out", str(report), "--quiet"]) == 0
    capsys.readouterr()
    code, from_report = run_json(f"gate trace --max-regression 0 --baseline {report}/report.json", capsys)
    _, from_trace = run_json("gate trace --max-regression 0 --baseline right", capsys)
    assert code == 1
    values = [[check["value"] for check in result["checks"]] for result in (from_report, from_trace)]  # type: ignore[index,attr-defined]
    assert values[0] == pytest.approx(values[1])
