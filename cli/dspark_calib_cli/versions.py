"""Versions of the tool and of the libraries that its numbers depend on."""

import platform
from importlib.metadata import PackageNotFoundError, version

LIBRARIES = ("numpy", "scipy", "pyarrow", "scikit-learn", "plotly", "torch", "transformers")


def version_lines() -> list[str]:
    """Return one line a library, `not installed` for the optional ones that are missing."""
    return [f"dspark-calib {_version('dspark-calib')}", f"python {platform.python_version()}"] + [
        f"{library} {_version(library)}" for library in LIBRARIES
    ]


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"
