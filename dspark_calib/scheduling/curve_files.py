"""Speed curves on disk: the toolkit's own JSON, SGLang's cost table, DeepInfer's cache and CSV.

`read_curve` tells them apart by content. The own format keeps the raw samples and what they were measured on.
"""

import csv
import io
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from dspark_calib.errors import CurveError, OutputExists
from dspark_calib.scheduling.curve import ProfileConditions, SpsCurve, make_curve

SCHEMA = "dspark-calib/sps/1"
_CSV_HEADERS = {("tokens", "steps_per_second"): False, ("tokens", "step_ms"): True}


def read_curve(path: str | os.PathLike[str]) -> SpsCurve:
    """Read a curve in any of the four formats.

    SGLang's table keeps its rule (the next smaller probe), DeepInfer's keeps its own (the next larger graph);
    a CSV file, which states none, is interpolated.

    Raises:
        CurveError: If the file cannot be read, follows none of the formats, or a point is wrong.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CurveError(f"{file}: not readable ({error}); make a curve with `dspark-calib profile-sps`") from error
    if not text.lstrip().startswith(("{", "[")):
        return _from_csv(text, str(file))
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CurveError(f"{file}: not readable as JSON ({error})") from error
    return _from_deepinfer(value, str(file)) if isinstance(value, list) else _from_object(value, str(file))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _from_object(value: Mapping[str, Any], where: str) -> SpsCurve:
    if value.get("schema") == SCHEMA:
        return _from_own(value, where)
    if "sample_batch_tokens" in value:
        return _from_sglang(value, where)
    if "bias_seconds" in value:
        raise CurveError(
            f"{where}: an additive SGLang table prices requests and tokens apart; "
            "a curve of verified tokens alone is needed (sample_batch_tokens, sample_steps_per_sec)"
        )
    raise CurveError(f"{where}: no curve; expected schema {SCHEMA!r}, SGLang's sample_batch_tokens or [[batch, ms], …]")


def _from_own(value: Mapping[str, Any], where: str) -> SpsCurve:
    points = value.get("points")
    if not isinstance(points, list) or not all(isinstance(p, Mapping) for p in points):
        raise CurveError(f"{where}, points: expected a list of objects with tokens and steps_per_second")
    for index, point in enumerate(points):
        for field in ("tokens", "steps_per_second"):
            if field not in point:
                raise CurveError(f"{where}, points, point {index + 1}: {field} is missing")
    return make_curve(
        [point["tokens"] for point in points],
        [point["steps_per_second"] for point in points],
        lookup=value.get("lookup", "linear"),
        max_tokens=value.get("max_tokens"),
        samples_ms=_samples([point.get("samples_ms") for point in points], where),
        conditions=_conditions(value.get("conditions"), where),
        where=where,
    )


def _samples(values: list[Any], where: str) -> tuple[tuple[float, ...], ...] | None:
    if any(value is None for value in values):
        return None
    try:
        return tuple(tuple(float(ms) for ms in value) for value in values)
    except (TypeError, ValueError) as error:
        raise CurveError(f"{where}, samples_ms: expected a list of milliseconds a point") from error


def _conditions(value: object, where: str) -> ProfileConditions | None:
    if value is None:
        return None
    names = {field.name for field in fields(ProfileConditions)}
    if not isinstance(value, Mapping) or set(value) != names:
        raise CurveError(f"{where}, conditions: expected an object with {', '.join(sorted(names))}")
    return ProfileConditions(**value)


def _from_sglang(value: Mapping[str, Any], where: str) -> SpsCurve:
    if "sample_steps_per_sec" not in value:
        raise CurveError(f"{where}, sample_steps_per_sec: missing from an SGLang cost table")
    return make_curve(
        value["sample_batch_tokens"],
        value["sample_steps_per_sec"],
        lookup="floor",
        max_tokens=value.get("max_batch_tokens"),
        where=where,
    )


def _from_deepinfer(value: list[Any], where: str) -> SpsCurve:
    for index, pair in enumerate(value):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, int | float) for x in pair)):
            raise CurveError(f"{where}, point {index + 1} = {pair!r}: expected [batch, milliseconds]")
    return _from_ms([p[0] for p in value], [float(p[1]) for p in value], "ceiling", where)


def _from_csv(text: str, where: str) -> SpsCurve:
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    header = tuple(cell.strip() for cell in rows[0]) if rows else ()
    if header not in _CSV_HEADERS:
        wanted = " or ".join(",".join(names) for names in _CSV_HEADERS)
        raise CurveError(f"{where}, row 1: expected the header {wanted}, found {','.join(header)!r}")
    points: list[list[float]] = []
    for number, row in enumerate(rows[1:], start=2):
        try:
            tokens, speed = (float(cell) for cell in row)
        except ValueError as error:
            raise CurveError(f"{where}, row {number} = {','.join(row)!r}: expected two numbers") from error
        points.append([tokens, speed])
    first, second = [p[0] for p in points], [p[1] for p in points]
    if _CSV_HEADERS[header]:
        return _from_ms(first, second, "linear", where)
    return make_curve(first, second, lookup="linear", where=where)


def _from_ms(tokens: list[float], step_ms: list[float], lookup: Any, where: str) -> SpsCurve:
    for index, ms in enumerate(step_ms):
        if not (np.isfinite(ms) and ms > 0):
            raise CurveError(f"{where}, point {index + 1}, step_ms = {ms:g}: expected a positive, finite time")
    return make_curve(tokens, 1000.0 / np.asarray(step_ms, dtype=np.float64), lookup=lookup, where=where)


def own_form(curve: SpsCurve) -> dict[str, Any]:
    """Return the toolkit's own JSON object: points with raw samples, the lookup rule and the conditions."""
    points: list[dict[str, Any]] = []
    for index, (tokens, speed) in enumerate(zip(curve.tokens.tolist(), curve.steps_per_second.tolist(), strict=True)):
        point = {"tokens": tokens, "steps_per_second": speed}
        if curve.samples_ms is not None:
            point["samples_ms"] = list(curve.samples_ms[index])
        points.append(point)
    return {
        "schema": SCHEMA,
        "lookup": curve.lookup,
        "max_tokens": curve.max_tokens,
        "points": points,
        "conditions": None if curve.conditions is None else asdict(curve.conditions),
    }


def render_own(curve: SpsCurve) -> str:
    """Return the toolkit's own JSON as text."""
    return _json(own_form(curve))


def render_sglang(curve: SpsCurve) -> str:
    """Return SGLang's cost table, `--speculative-dspark-sps-table-path`."""
    return _json(
        {
            "sample_batch_tokens": curve.tokens.tolist(),
            "sample_steps_per_sec": curve.steps_per_second.tolist(),
            "max_batch_tokens": curve.max_tokens,
        }
    )


def render_deepinfer(curve: SpsCurve) -> str:
    """Return DeepInfer's `[[batch size, milliseconds], …]`, the content of a decode performance cache file."""
    return json.dumps([[b, ms] for b, ms in zip(curve.tokens.tolist(), curve.step_ms.tolist(), strict=True)]) + "\n"


def render_csv(curve: SpsCurve) -> str:
    """Return a CSV table with the header `tokens,steps_per_second`."""
    rows = zip(curve.tokens.tolist(), curve.steps_per_second.tolist(), strict=True)
    return "tokens,steps_per_second\n" + "".join(f"{b},{speed!r}\n" for b, speed in rows)


CURVE_WRITERS: dict[str, Callable[[SpsCurve], str]] = {
    "dspark-calib": render_own,
    "sglang": render_sglang,
    "deepinfer": render_deepinfer,
    "csv": render_csv,
}


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Refuse an output that stands already; a measurement asks before it starts.

    Raises:
        OutputExists: If the file is there and `overwrite` is not set.
    """
    if path.exists() and not overwrite:
        raise OutputExists(f"{path} exists already; name another output or pass --overwrite")


def write_curve(
    curve: SpsCurve, path: str | os.PathLike[str], *, layout: str = "dspark-calib", overwrite: bool = False
) -> Path:
    """Write a curve under a temporary name, then rename it.

    Args:
        curve: What to write.
        path: Where to.
        layout: One of `CURVE_WRITERS`.
        overwrite: Replace an existing file.

    Raises:
        CurveError: If there is no such layout.
        OutputExists: If the file stands already and `overwrite` is not set.
    """
    file = Path(path)
    if layout not in CURVE_WRITERS:
        raise CurveError(f"{layout}: no such curve layout; expected one of {', '.join(CURVE_WRITERS)}")
    refuse_existing(file, overwrite=overwrite)
    file.parent.mkdir(parents=True, exist_ok=True)
    staging = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        staging.write_text(CURVE_WRITERS[layout](curve), encoding="utf-8")
        staging.replace(file)
    finally:
        staging.unlink(missing_ok=True)
    return file


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
