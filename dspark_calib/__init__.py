"""Calibration and diagnostics for confidence-scheduled speculative decoding.

The trace (`dspark_calib.trace`) is the noun in the middle: collectors and importers make one,
fitters, metrics, gates and reports read one. See docs/concepts for the ideas.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("dspark-calib")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
