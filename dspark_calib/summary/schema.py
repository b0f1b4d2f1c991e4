"""The JSON Schema of a report, read off the records themselves, so that the two cannot drift apart.

`report.schema.json` beside this file is its output (`python -m dspark_calib.summary.schema` writes it
anew); a test holds them equal.
"""

import inspect
import json
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from dspark_calib.metrics.estimate import Estimate
from dspark_calib.summary.record import SCHEMA, Report

Json = dict[str, Any]
FILE = Path(__file__).with_name("report.schema.json")

_NUMBER: Json = {"type": ["number", "null"]}
_INTERVAL: Json = {
    "description": "95 % interval, clustered by prompt",
    "type": ["array", "null"],
    "items": {"type": "number"},
    "minItems": 2,
    "maxItems": 2,
}
_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def build_schema() -> Json:
    """Return the JSON Schema (draft 2020-12) of `report --json`."""
    definitions: dict[str, Json] = {}
    top = _record(Report, definitions)
    top["properties"] = {"schema": {"const": SCHEMA}, **top["properties"]}
    top["required"] = ["schema", *top["required"]]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA}
    return {**head, **top, "$defs": dict(sorted(definitions.items()))}


def render_schema() -> str:
    """Return the text of `report.schema.json`."""
    return json.dumps(build_schema(), indent=1, ensure_ascii=False) + "\n"


def _record(kind: type, definitions: dict[str, Json]) -> Json:
    words = _attribute_words(kind)
    hints = get_type_hints(kind)
    properties: dict[str, Json] = {}
    for field in fields(kind):
        properties |= _field(field.name, hints[field.name], words.get(field.name, ""), definitions)
    return {
        "description": (inspect.getdoc(kind) or kind.__name__).splitlines()[0],
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _field(name: str, hint: Any, words: str, definitions: dict[str, Json]) -> dict[str, Json]:
    described = {"description": words} if words else {}
    if hint is Estimate:
        return {name: described | _NUMBER, f"{name}_se": _NUMBER, f"{name}_interval": _INTERVAL}
    if get_origin(hint) is tuple and get_args(hint)[0] is Estimate:
        keys = {name: _NUMBER, f"{name}_se": _NUMBER, f"{name}_interval": _INTERVAL}
        lists: dict[str, Json] = {key: {"type": "array", "items": item} for key, item in keys.items()}
        return lists | {name: described | lists[name]}
    return {name: described | _type(hint, definitions)}


def _type(hint: Any, definitions: dict[str, Json]) -> Json:
    arguments = get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if get_origin(hint) is Literal:
        return {"enum": list(arguments)}
    if get_origin(hint) in (Union, UnionType):
        return {"anyOf": [_type(argument, definitions) for argument in arguments]}
    if get_origin(hint) is tuple:
        return _array(arguments, definitions)
    if get_origin(hint) is dict:
        return {"type": "object", "additionalProperties": _type(arguments[1], definitions)}
    return _reference(hint, definitions)


def _array(arguments: tuple[Any, ...], definitions: dict[str, Json]) -> Json:
    items = _type(arguments[0], definitions)
    if arguments[-1] is Ellipsis:
        return {"type": "array", "items": items}
    return {"type": "array", "items": items, "minItems": len(arguments), "maxItems": len(arguments)}


def _reference(kind: Any, definitions: dict[str, Json]) -> Json:
    if not is_dataclass(kind) or not isinstance(kind, type):
        raise TypeError(f"{kind} has no form in the JSON of a report")
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}  # holds the place, should a record refer to itself
        definitions[kind.__name__] = _record(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _attribute_words(kind: type) -> dict[str, str]:
    """Return what the docstring's Attributes section says of each field."""
    _, _, section = (inspect.getdoc(kind) or "").partition("Attributes:\n")
    entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, flags=re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in entries}


if __name__ == "__main__":
    FILE.write_text(render_schema(), encoding="utf-8")
