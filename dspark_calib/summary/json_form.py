"""The report as JSON: one rule for every record, so that no number is written twice.

A dataclass becomes an object with its field names. An `Estimate` in a field `x` becomes the three
keys `x`, `x_se` and `x_interval`; a tuple of them becomes three lists. What does not exist is null;
NaN and infinity never appear. The shape is described in `report.schema.json` beside this file.
"""

import json
import math
from dataclasses import fields, is_dataclass
from importlib import resources
from typing import Any

from dspark_calib.metrics.estimate import Estimate
from dspark_calib.summary.record import SCHEMA, Report

Json = Any


def report_to_json(report: Report) -> dict[str, Json]:
    """Return the report as JSON values, `schema` first."""
    return {"schema": SCHEMA, **_record(report)}


def render_json(report: Report) -> str:
    """Return the report as JSON text: the same report gives the same bytes."""
    return json.dumps(report_to_json(report), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def load_schema() -> dict[str, Json]:
    """Return the JSON Schema that every report follows."""
    text = resources.files("dspark_calib.summary").joinpath("report.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Json] = json.loads(text)
    return schema


def _record(record: Any) -> dict[str, Json]:
    out: dict[str, Json] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if _is_estimates(value):
            out |= _estimates(field.name, value)
        else:
            out[field.name] = _plain(value)
    return out


def _is_estimates(value: Any) -> bool:
    return isinstance(value, Estimate) or (
        isinstance(value, tuple) and bool(value) and all(isinstance(item, Estimate) for item in value)
    )


def _estimates(name: str, value: Estimate | tuple[Estimate, ...]) -> dict[str, Json]:
    if isinstance(value, Estimate):
        return {name: _plain(value.value), f"{name}_se": _plain(value.se), f"{name}_interval": _interval(value)}
    return {
        name: [_plain(item.value) for item in value],
        f"{name}_se": [_plain(item.se) for item in value],
        f"{name}_interval": [_interval(item) for item in value],
    }


def _interval(estimate: Estimate) -> Json:
    if estimate.low is None or estimate.high is None:
        return None
    return [_plain(estimate.low), _plain(estimate.high)]


def _plain(value: Any) -> Json:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    if is_dataclass(value):
        return _record(value)
    return value
