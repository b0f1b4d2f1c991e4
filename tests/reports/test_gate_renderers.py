"""A gate as JUnit and for GitHub: strict parsers read it, whatever the names in it are."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from defusedxml import ElementTree as StrictET
from hypothesis import given
from hypothesis import strategies as st

from dspark_calib.decision.check import Check
from dspark_calib.decision.gate import Gate
from dspark_calib.decision.outcome import Outcome
from dspark_calib.errors import DsparkCalibError
from dspark_calib_reports.github import (
    MAX_SUMMARY_BYTES,
    append_step_summary,
    render_annotations,
    render_step_summary,
)
from dspark_calib_reports.junit import render_junit, write_junit

HOSTILE = [
    "\x1b[31mred\x00",
    "]]>",
    "<script>alert(1)</script>",
    '" onmouseover="x',
    "&amp;&#0;",
    "\ud800",
    "\ufffe",
    "a\nb\r\nc",
    "::error::x",
    "100% | `x` \\",
    "مرحبا \U0001f600",
]


def check(
    outcome: Outcome, group: str = "all", position: int | None = 1, *, undefined: bool = False, value: float = 0.1
) -> Check:
    """Return a check with this outcome."""
    return Check(
        condition="max-ece",
        group=group,
        position=position,
        limit=0.05,
        value=None if undefined else value,
        low=None if undefined else value - 0.01,
        high=None if undefined else value + 0.01,
        rounds=100,
        outcome=outcome,
        undefined=undefined,
        reason=f"because {group}",
    )


def gate(*checks: Check, inconclusive: str | None = None, warnings: tuple[str, ...] = ()) -> Gate:
    """Return a gate of these checks."""
    return Gate(
        checks=checks,
        view="raw",
        evaluation=None,
        rounds=100,
        prompts=5,
        clusters="prompts",
        baseline=None,
        inconclusive=inconclusive,  # type: ignore[arg-type]
        warnings=warnings,
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_junit_with_hostile_names_is_well_formed(name: str, tmp_path: Path) -> None:
    """A strict parser reads the file back with every check in it."""
    path = tmp_path / "junit.xml"
    write_junit(path, gate(check(Outcome.FAIL, name), check(Outcome.PASS, name), warnings=(name,)))
    suite = StrictET.parse(path).getroot().find("testsuite")
    assert suite is not None
    assert suite.get("tests") == "2"
    assert len(suite.findall("testcase")) == 2
    assert len(suite.findall("testcase/failure")) == 1


@given(st.text(), st.text())
def test_junit_parses_for_any_text(group: str, warning: str) -> None:
    """No text whatsoever makes the XML unreadable."""
    StrictET.fromstring(render_junit(gate(check(Outcome.INCONCLUSIVE, group), warnings=(warning,))).encode())


def test_ordinary_names_stay_as_they_are() -> None:
    """Cleaning touches only what XML cannot hold."""
    case = StrictET.fromstring(render_junit(gate(check(Outcome.FAIL, "code & <math>")))).find("testsuite/testcase")
    assert case is not None
    assert case.get("name") == "max-ece, code & <math>, position 1"


def test_junit_never_shows_an_open_check_as_green() -> None:
    """Fail is a failure, open and undefined are errors, and the counts say so."""
    checks = (
        check(Outcome.FAIL),
        check(Outcome.INCONCLUSIVE),
        check(Outcome.INCONCLUSIVE, undefined=True),
        check(Outcome.PASS),
    )
    suite = StrictET.fromstring(render_junit(gate(*checks))).find("testsuite")
    assert suite is not None
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "2",
        "skipped": "0",
    }


def test_junit_follows_the_policy_for_open_checks() -> None:
    """Under --inconclusive pass an open check is green, an undefined one still is not."""
    checks = (check(Outcome.INCONCLUSIVE), check(Outcome.INCONCLUSIVE, undefined=True))
    suite = StrictET.fromstring(render_junit(gate(*checks, inconclusive="pass"))).find("testsuite")
    assert suite is not None
    assert suite.get("errors") == "1"


def test_a_junit_file_that_cannot_be_read_back_is_not_written(tmp_path: Path) -> None:
    """The file gets its name only after a parser accepted it."""

    def refuse(text: str) -> object:
        raise ET.ParseError(text[:5])

    path = tmp_path / "junit.xml"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(DsparkCalibError, match="cannot be parsed again"):
        write_junit(path, gate(check(Outcome.PASS)), parse=refuse)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", HOSTILE)
def test_annotations_are_one_command_a_line(name: str) -> None:
    """Neither a line break nor a colon in a name can start another workflow command."""
    lines = render_annotations(gate(check(Outcome.FAIL, name), check(Outcome.INCONCLUSIVE, name))).split("\n")[:-1]
    assert len(lines) == 3
    for line, level in zip(lines, ("error", "warning", "error"), strict=True):
        assert line.startswith(f"::{level} title=")
        assert line.count("::") >= 2
        title = line.removeprefix(f"::{level} title=").split("::")[0]
        assert "," not in title
        assert "\r" not in line


def test_annotations_show_the_worst_few_and_the_total() -> None:
    """Five annotations, failed before open and farthest first, then one line with the counts."""
    checks = [check(Outcome.INCONCLUSIVE, value=9.0)] + [
        check(Outcome.FAIL, value=i / 10, position=i) for i in range(1, 9)
    ]
    lines = render_annotations(gate(*checks)).splitlines()
    assert len(lines) == 6
    assert [line.split("position ")[1].split("::")[0] for line in lines[:5]] == ["8", "7", "6", "5", "4"]
    assert "8 fail, 1 inconclusive of 9 checks" in lines[5]


def test_a_passed_gate_is_a_notice() -> None:
    """Nothing to complain about is one notice."""
    assert render_annotations(gate(check(Outcome.PASS))).startswith("::notice title=dspark-calib gate::1 pass")


@pytest.mark.parametrize("name", HOSTILE)
def test_summary_rows_stay_rows(name: str) -> None:
    """A name breaks neither the table nor out of it into HTML."""
    text = render_step_summary(gate(check(Outcome.FAIL, name)))
    rows = [line for line in text.splitlines() if line.startswith("| ❌")]
    assert len(rows) == 1
    assert rows[0].replace("\\|", "").count("|") == 10
    assert "<script" not in text
    assert "\x1b" not in text


def test_summary_stays_under_the_limit_and_shows_the_worst_first(tmp_path: Path) -> None:
    """20,000 checks fit into 900 KB, failures on top, with a line that counts the rest."""
    checks = [check(Outcome.PASS, f"group {i}" * 5) for i in range(20_000)] + [check(Outcome.FAIL, "bad")]
    path = tmp_path / "summary.md"
    append_step_summary(path, gate(*checks))
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size <= MAX_SUMMARY_BYTES
    assert text.index("bad") < text.index("group 0")
    assert "more checks are left out here" in text
    append_step_summary(path, gate(*checks))
    assert path.stat().st_size <= MAX_SUMMARY_BYTES
