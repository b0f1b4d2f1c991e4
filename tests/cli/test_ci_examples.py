"""The CI examples parse, name options that exist, and their gate script runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml

from dspark_calib.trace import write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds
from dspark_calib_cli.app import app

CI = Path(__file__).resolve().parents[2] / "examples" / "ci"
FILES = sorted(CI.rglob("*.yml"))


def load(path: Path) -> dict[Any, Any]:
    """Parse one file."""
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_every_command_in_the_examples_exists_with_its_options(path: Path) -> None:
    """Each `dspark-calib …` line names a command and long options that the app has."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    load(path)
    lines = re.findall(r"dspark-calib ([a-z-]+)((?: [^\n|)]+)?)", path.read_text(encoding="utf-8"))
    assert lines
    for name, rest in lines:
        known = {option for parameter in commands[name].params for option in parameter.opts}
        used = {word for word in shlex.split(rest, posix=False) if word.startswith("--")}
        assert used <= known, f"{name}: {used - known}"


def gate_script() -> str:
    """Return the script of the composite action's gate step."""
    steps = load(CI / "dspark-gate" / "action.yml")["runs"]["steps"]
    return str(next(step["run"] for step in steps if step.get("id") == "gate"))


@pytest.mark.parametrize(("limits", "code"), [("--max-ece 0.3", 0), ("--max-ece 0.02", 1)])
def test_the_action_passes_the_exit_code_on(tmp_path: Path, limits: str, code: int) -> None:
    """The step ends with the gate's code, and leaves it, the JUnit report and the summary behind."""
    rounds = synthetic_rounds(np.random.default_rng(0), prompts=40, rounds_per_prompt=30, temperatures=[2.5, 2.5])
    write_trace(tmp_path / "a trace", synthetic_provenance(2), [rounds])
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TRACE": "a trace",
        "LIMITS": limits,
        "CALIBRATION": "",
        "BASELINE": "",
        "INCONCLUSIVE": "",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    command = ["bash", "-e", "-o", "pipefail", "-c", gate_script()]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == code, run.stderr
    assert (tmp_path / "output").read_text() == f"exit-code={code}\n"
    assert (tmp_path / "dspark-gate.xml").is_file()
    assert (tmp_path / "summary.md").read_text().startswith("### ")
