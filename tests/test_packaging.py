"""What is installed: metadata, pins, start-up time, and (slow) wheels tried in clean environments."""

import ast
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points, packages_distributions, version
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dspark_calib

ROOT = Path(__file__).resolve().parents[1]
TRACE = ROOT / "tests" / "data" / "traces" / "demo"
PYTHONS = ("3.11", "3.12", "3.13")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command: str | Path, cwd: Path, ok: tuple[int, ...] = (0,)) -> str:
    """Run a command with no way to see the source tree; return its stdout."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in ok, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_version_is_that_of_the_installed_package() -> None:
    """`dspark_calib.__version__`, the metadata, pyproject.toml and CITATION.cff agree."""
    assert dspark_calib.__version__ == version("dspark-calib") == PROJECT["version"]
    assert f"version: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_console_script_is_there() -> None:
    """The console script `dspark-calib` starts the command line's `main`."""
    (script,) = entry_points(group="console_scripts", name="dspark-calib")
    assert script.value == "dspark_calib_cli:main"


def test_classifiers_state_the_pythons_we_try() -> None:
    """The Python versions declared are those that the packaging test installs on."""
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert tuple(declared) == PYTHONS


def test_every_declared_dependency_is_pinned_for_the_demo() -> None:
    """constraints.txt pins each requirement of every extra, within the range pyproject.toml declares."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    declared = list(chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()))
    for requirement in map(Requirement, declared):
        name = canonicalize_name(requirement.name)
        if name != "dspark-calib":
            assert name in pins, f"{name} is not in constraints.txt"
            assert requirement.specifier.contains(pins[name], prereleases=True)
    assert pins["torch"] == "2.13.0"


@cache
def distributions_by_module() -> Mapping[str, list[str]]:
    """The installed distributions behind each importable top-level name."""
    return packages_distributions()


def imported_packages(folder: Path) -> set[str]:
    """Distributions whose modules the Python files under a folder import anywhere."""
    modules: set[str] = set()
    for file in folder.rglob("*.py"):
        if not {".venv", ".cache", "build"} & set(file.parts):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                modules |= {name.partition(".")[0] for name in names}
    owners = distributions_by_module()
    return {canonicalize_name(owners[name][0]) for name in modules if name in owners} - {"dspark-calib"}


@pytest.mark.parametrize("folder", ["dspark_calib", "cli", "reports", "tests", "examples", "benchmarks", "docs"])
def test_every_import_is_declared(folder: str) -> None:
    """What the code imports is a declared dependency, not a guest of another package."""
    declared = chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    names = {canonicalize_name(Requirement(line).name) for line in declared}
    assert imported_packages(ROOT / folder) <= names


def test_help_starts_light_and_fast(tmp_path: Path) -> None:
    """`dspark-calib --help` imports no torch, transformers, pandas, scikit-learn or plotly and takes under a second."""
    heavy = "{'torch', 'transformers', 'pandas', 'sklearn', 'plotly', 'scipy.stats', 'ray'}"
    code = (
        f"import sys, dspark_calib_cli.app as a; a.run(['--help']); print({heavy} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "set()"
    assert min(help_seconds(Path(sys.executable).parent / "dspark-calib", tmp_path) for _ in range(3)) < 1.0


def help_seconds(script: Path, cwd: Path) -> float:
    """Wall time of one `--help`."""
    start = time.perf_counter()
    run(script, "--help", cwd=cwd)
    return time.perf_counter() - start


def find_python(minor: str) -> str | None:
    """The interpreter of a Python version: this one, on the path, or from pyenv."""
    if minor == f"{sys.version_info.major}.{sys.version_info.minor}":
        return getattr(sys, "_base_executable", sys.executable)
    found = sorted(Path.home().glob(f".pyenv/versions/{minor}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(f"python{minor}")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.mark.slow
def test_the_distributions_hold_what_they_need(distributions: Path) -> None:
    """The sdist carries licence and sources; the wheel the three packages, their templates and type markers."""
    (sdist,) = distributions.glob("*.tar.gz")
    (wheel,) = distributions.glob("*.whl")
    packed = run("tar", "tzf", sdist, cwd=distributions)
    for name in ("LICENSE", "README.md", "pyproject.toml", "cli/dspark_calib_cli/app.py"):
        assert f"/{name}\n" in packed
    inside = run(sys.executable, "-m", "zipfile", "-l", wheel, cwd=distributions)
    for package in ("dspark_calib", "dspark_calib_cli", "dspark_calib_reports"):
        assert f"{package}/py.typed" in inside
    assert re.search(r"dspark_calib_reports/\S+\.jinja", inside)
    assert "tests/" not in inside
    assert "examples/" not in inside


@pytest.mark.slow
@pytest.mark.parametrize("minor", PYTHONS)
def test_the_base_install_works_without_torch(minor: str, distributions: Path, tmp_path: Path) -> None:
    """In a clean environment the wheel alone fits, reports, gates, exports and checks drift on a recorded trace."""
    python = find_python(minor)
    if python is None:
        pytest.skip(f"Python {minor} is not installed here")
    (wheel,) = distributions.glob("*.whl")
    run(python, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    bin_folder = tmp_path / "venv" / "bin"
    pins = ("--constraint", ROOT / "constraints.txt")
    pip = (bin_folder / "pip", "install", "--quiet", "--no-compile", "--only-binary", ":all:")
    run(*pip, *pins, wheel, cwd=tmp_path)
    run(bin_folder / "python", "-c", "import torch", cwd=tmp_path, ok=(1,))
    work = tmp_path / "work"
    shutil.copytree(TRACE, work / "trace")
    tool = bin_folder / "dspark-calib"
    run(tool, "fit-sts", cwd=work)
    run(tool, "report", "--html", "--json", cwd=work)
    run(tool, "gate", "--max-ece", "0.5", cwd=work, ok=(0, 3))
    assert "DEEPINFER_DFLASH_CONFIDENCE_HEAD_TEMPERATURE=" in run(tool, "export", "--engine", "deepinfer", cwd=work)
    run(tool, "drift", "trace", "trace", cwd=work, ok=(0, 3))
    assert (work / "report" / "report.html").stat().st_size > 100_000
    assert min(help_seconds(tool, work) for _ in range(3)) < 1.0
    refusal = subprocess.run([tool, "collect"], cwd=work, capture_output=True, text=True, check=False)
    assert refusal.returncode == 2
    assert "Traceback" not in refusal.stderr
