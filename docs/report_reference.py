"""Write docs/reference/report-json.md from the report's JSON Schema; `--check` fails where the page is not current."""

import sys
from pathlib import Path
from typing import Any

from dspark_calib.summary.schema import build_schema

PAGE = Path(__file__).parent / "reference" / "report-json.md"

INTRODUCTION = """# Report JSON

`dspark-calib report --json` writes `report/report.json`: everything the page shows, in one object. It is generated
from the JSON Schema in `dspark_calib/summary/report.schema.json` by `docs/report_reference.py`; the tests validate
reports against it.

- `schema` is the first key; within one schema version keys keep their names and meaning.
- Positions are counted from 1. A value that does not exist is `null`; there is never NaN or Infinity.
- A number `x` may have beside it `x_se`, its standard error, and `x_interval`, its 95 % interval; both are clustered by
  prompt.
"""


def render_reference() -> str:
    """The page as Markdown."""
    schema = build_schema()
    records = [("The report", schema), *schema["$defs"].items()]
    return "\n".join([INTRODUCTION, *(_record(name, record) for name, record in records)])


def _record(name: str, record: dict[str, Any]) -> str:
    rows = [f"| `{key}` | {_kind(value)} | {_words(value)} |" for key, value in record["properties"].items()]
    return (
        f"## {name}\n\n{_cell(record['description'])}\n\n| key | type | meaning |\n|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def _kind(value: dict[str, Any]) -> str:
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return " or ".join(f"`{choice}`" for choice in value["enum"])
    if "anyOf" in value:
        return " or ".join(_kind(option) for option in value["anyOf"])
    kinds = value["type"] if isinstance(value["type"], list) else [value["type"]]
    inner = f" of {_kind(value['items'])}" if "items" in value else ""
    return " or ".join(f"{kind}{inner if kind == 'array' else ''}" for kind in kinds)


def _words(value: dict[str, Any]) -> str:
    return _cell(value.get("description", ""))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("None", "null")


if __name__ == "__main__":
    text = render_reference()
    if "--check" in sys.argv[1:]:
        sys.exit(PAGE.read_text() != text and f"{PAGE} is not current: run python {Path(__file__).name}")
    PAGE.write_text(text)
