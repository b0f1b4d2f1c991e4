"""Checks on a trace: failures people really had, as named findings with counts."""

from dspark_calib.diagnostics.checks import check_trace
from dspark_calib.diagnostics.finding import Finding, require_accepted

__all__ = ["Finding", "check_trace", "require_accepted"]
