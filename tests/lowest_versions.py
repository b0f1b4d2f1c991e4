"""Print pip constraints that hold dependencies at the lowest version pyproject.toml allows.

Run as `python tests/lowest_versions.py [EXTRA]…`; the dependencies of the base install are always among them.
"""

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def lowest_pins(extras: list[str]) -> list[str]:
    """`name==version` for each requirement, its `>=` read as `==`."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    lines = project["dependencies"] + [line for extra in extras for line in project["optional-dependencies"][extra]]
    requirements = [Requirement(line) for line in lines]
    return [f"{r.name}=={s.version}" for r in requirements for s in r.specifier if s.operator == ">="]


if __name__ == "__main__":
    print("\n".join(lowest_pins(sys.argv[1:])))
