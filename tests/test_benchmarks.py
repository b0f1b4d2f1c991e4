"""The benchmarks of the statistics run on a small input and print what they promise."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def run(script: str, *options: Any) -> subprocess.CompletedProcess[str]:
    """Run a benchmark to its end."""
    command = [sys.executable, str(BENCHMARKS / f"{script}.py"), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trace by the generator."""
    folder = tmp_path_factory.mktemp("benchmark") / "trace"
    done = run("synthetic_trace", "--out", folder, "--rounds", 3000, "--prompts", 60, "--gamma", 2)
    assert done.stdout.startswith("3000 rounds from 60 prompts")
    return folder


def test_fit_speed_compares_with_the_plain_fitter(trace: Path) -> None:
    """A row a step in the table and in the JSON, a peak that never falls, and the ratio to the plain fitter scaled."""
    done = run("fit_speed", trace, "--check")
    result = json.loads(done.stdout)
    steps = {step["name"]: step for step in result["steps"]}
    assert result["same_as_exhaustive"] is True
    scaled = steps["plain fitter, scaled"]["seconds"]
    assert result["plain_over_bare_fit"] == pytest.approx(scaled / steps["fit, bare minimum"]["seconds"])
    assert result["plain_over_default_fit"] == pytest.approx(scaled / steps["fit, default"]["seconds"])
    peaks = [step["peak_gigabytes"] for step in result["steps"]]
    assert peaks == sorted(peaks)
    lines = done.stderr.splitlines()
    assert all(any(line.startswith(name) for line in lines) for name in steps)


def test_fit_speed_can_leave_out_the_rest(trace: Path) -> None:
    """`--fit-only` stops after the fit."""
    result = json.loads(run("fit_speed", trace, "--fit-only").stdout)
    assert [step["name"] for step in result["steps"]] == ["read", "blocks", "fit, bare minimum", "fit, default"]
    assert "plain_over_bare_fit" not in result


def test_kernels_agree_with_the_librarys() -> None:
    """Every kernel in float64 gives the library's sums, numpy's to the last bit where rows are added in one go."""
    result = json.loads(run("kernels", "--rows", 5000, "--repeats", 1).stdout)
    errors = {kernel["kernel"]: kernel["largest_error"] for kernel in result["kernels"]}
    assert {name for name, error in errors.items() if error == 0} >= {
        "numpy (library)",
        "numpy, bincount",
        "numpy, add.at",
    }
    assert max(error for name, error in errors.items() if name != "numpy, float32") < 1e-12
