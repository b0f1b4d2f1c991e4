"""A gate as JUnit XML: one test case a check, for any CI that shows test results."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

from dspark_calib.decision.check import Check
from dspark_calib.decision.gate import Gate
from dspark_calib.decision.outcome import Outcome
from dspark_calib.errors import DsparkCalibError

# XML 1.0 §2.2: no parser reads these, whichever way they are written; one of them hides a whole report.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(gate: Gate) -> str:
    """Return the gate as a JUnit test suite.

    A failed check is a failure; an open or undefined one an error, because a CI that shows skipped tests as
    green would make it a pass. Checks that `--inconclusive` settles count as what it says.
    """
    counted = [gate.counted_as(check) for check in gate.checks]
    suite = ET.Element(
        "testsuite",
        name="dspark-calib gate",
        tests=str(len(counted)),
        failures=str(counted.count(Outcome.FAIL)),
        errors=str(counted.count(Outcome.INCONCLUSIVE)),
        skipped="0",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(gate):
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    for check, outcome in zip(gate.checks, counted, strict=True):
        _add_case(suite, check, outcome)
    root = ET.Element("testsuites", name="dspark-calib")
    root.append(suite)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def write_junit(path: Path, gate: Gate, parse: Callable[[str], object] = ET.fromstring) -> None:
    """Write the report, read it back as a parser would, and only then give it its name.

    Args:
        path: The XML file.
        gate: What to render.
        parse: The parser that must accept the text.

    Raises:
        DsparkCalibError: If the text cannot be parsed again; nothing is written then.
    """
    text = render_junit(gate)
    staging = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging.write_text(text, encoding="utf-8")
        parse(staging.read_text(encoding="utf-8"))
        staging.replace(path)
    except ET.ParseError as error:
        raise DsparkCalibError(
            f"{path}: the JUnit report cannot be parsed again ({error}); please report this"
        ) from error
    except OSError as error:
        raise DsparkCalibError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        staging.unlink(missing_ok=True)


def _properties(gate: Gate) -> list[tuple[str, str]]:
    return [
        ("outcome", gate.outcome.value),
        ("view", gate.view),
        ("evaluation", gate.evaluation or "raw"),
        ("rounds", str(gate.rounds)),
        ("prompts", str(gate.prompts)),
        ("baseline", gate.baseline or "none"),
        *(("warning", warning) for warning in gate.warnings),
    ]


def _add_case(suite: ET.Element, check: Check, outcome: Outcome) -> None:
    case = ET.SubElement(
        suite, "testcase", classname=_clean(f"dspark-calib.{check.condition}"), name=_clean(check.name), time="0"
    )
    if outcome is Outcome.PASS:
        return
    tag = "failure" if outcome is Outcome.FAIL else "error"
    problem = ET.SubElement(case, tag, type=outcome.value, message=_clean(check.reason))
    problem.text = _clean(_details(check))


def _details(check: Check) -> str:
    interval = "none" if check.low is None or check.high is None else f"{check.low:.4f} to {check.high:.4f}"
    value = "undefined" if check.value is None else f"{check.value:.4f}"
    return f"{check.name}: {value}, interval {interval}, limit {check.limit:g}, {check.rounds} rounds; {check.reason}"


def _clean(text: str) -> str:
    """Replace what XML cannot hold, as the replacement character."""
    return _NOT_XML.sub("\ufffd", text)
