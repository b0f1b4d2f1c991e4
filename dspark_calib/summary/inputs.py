"""From paths to a report: opens what was named and calls `compute_report`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dspark_calib.calibration import read_calibration
from dspark_calib.errors import TraceFormatError
from dspark_calib.scheduling.curve_files import read_curve
from dspark_calib.scheduling.simulate_trace import simulate_trace
from dspark_calib.summary.build import By, NamedCalibration, OldSide, Progress, compute_report, counters_report
from dspark_calib.summary.record import SCHEMA, Report
from dspark_calib.summary.sources import NamedCounts, check_calibration, split_traces
from dspark_calib.trace import Trace, open_trace
from dspark_calib.trace.readers.acceptance import FILE_NAME, read_acceptance

CONCURRENCIES = (1, 8, 64, 256)


def read_report(
    paths: Sequence[Path],
    *,
    calibration: Path | None = None,
    sps: Path | None = None,
    old: Path | None = None,
    by: By = "domain",
    seed: int = 0,
    allow_mixed: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Read traces and counters and return their report.

    Args:
        paths: Trace folders, `acceptance.json` files or folders that hold one.
        calibration: Calibration file, or None for raw confidences.
        sps: Speed curve for the replay, or None for none.
        old: Trace folder or `report.json` to compare with.
        by: Column whose values make the groups.
        seed: Of the bootstrap draws.
        allow_mixed: Join traces of different drafters, laws or temperatures.
        progress: Called with the name of a step and the rows done in it.

    Raises:
        TraceFormatError: If a path is neither a trace nor counters, or OLD is no report.
        IncompatibleTraces: If traces have different targets.
        CalibrationFileError: If the calibration is malformed or belongs to another checkpoint.
    """
    counters = tuple(NamedCounts(name=str(p), counts=read_acceptance(_counts_file(p))) for p in paths if _is_counts(p))
    traces = [open_trace(path) for path in paths if not _is_counts(path)]
    if not traces:
        return counters_report(counters)
    trace, beside = split_traces(traces, allow_mixed=allow_mixed)
    named = None
    if calibration is not None:
        named = NamedCalibration(file=calibration.name, calibration=read_calibration(calibration))
        check_calibration(trace, named.calibration, named.file)
    simulation = None
    if sps is not None:
        fitted = None if named is None else named.calibration
        simulation = simulate_trace(trace, read_curve(sps), fitted, concurrencies=CONCURRENCIES, seed=seed)
    return compute_report(
        trace,
        calibration=named,
        beside=beside,
        counters=counters,
        old=None if old is None else _old_side(old),
        simulation=simulation,
        by=by,
        seed=seed,
        progress=progress,
    )


def _is_counts(path: Path) -> bool:
    return path.is_file() or ((path / FILE_NAME).is_file() and not (path / "trace.json").is_file())


def _counts_file(path: Path) -> Path:
    return path if path.is_file() else path / FILE_NAME


def _old_side(path: Path) -> OldSide:
    if path.is_dir():
        trace: Trace = open_trace(path)
        return OldSide(name=path.name, trace=trace)
    return OldSide(name=path.name, report=_read_report_json(path))


def _read_report_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise TraceFormatError(f"{path}: not readable as a trace folder or a report's JSON ({error})") from error
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise TraceFormatError(f"{path}: no {SCHEMA!r}; --compare takes a trace folder or a report.json")
    return value
