"""The page as text: self-contained, deterministic, escaped, small, and true for poor input."""

import json
import re
from dataclasses import replace

import pytest
from example_record import example_report, group, missing_measures, without_calibration

from dspark_calib.metrics.estimate import UNDEFINED, Estimate
from dspark_calib.summary.measures import Group, Measures
from dspark_calib.summary.record import Report, Verdict
from dspark_calib_reports.chapters import report_sections
from dspark_calib_reports.figures.reliability import draw_reliability
from dspark_calib_reports.page.render import figure_json, render_figures, render_page

MEGABYTE = 1_000_000


def with_positions(whole: Group, why: str, positions: set[int]) -> Group:
    """The group with nothing known at some positions."""

    def cut(measures: Measures) -> Measures:
        rows = (missing_measures(r.position, 0, why) if r.position in positions else r for r in measures.positions)
        return replace(measures, positions=tuple(rows))

    return replace(whole, raw=cut(whole.raw), calibrated=cut(whole.calibrated) if whole.calibrated else None)


def nothing_known() -> Report:
    """A report in which no position has a number."""
    report = example_report(names=())
    whole = with_positions(report.groups[0], "no rounds", set(range(1, 8)))
    unknown = replace(whole.raw, mean_ece=UNDEFINED, mean_ece_floor=None)
    verdict = Verdict(outcome="undecided", reasons=("undefined",), mean_ece_change=UNDEFINED, worst_position=None)
    return replace(report, groups=(replace(whole, raw=unknown, calibrated=unknown),), verdict=verdict)


def counters_only() -> Report:
    """A report of acceptance counts without rounds."""
    report = without_calibration(example_report())
    verdict = Verdict(outcome="no_confidence", reasons=(), mean_ece_change=UNDEFINED, worst_position=None)
    return replace(report, groups=(), slices=(), proxies=(), comparison=None, verdict=verdict, findings=())


POOR = {
    "a position nobody reached": lambda: replace(
        example_report(), groups=(with_positions(example_report().groups[0], "no rounds", {7}),)
    ),
    "one class": lambda: replace(
        example_report(), groups=(with_positions(example_report().groups[0], "single class", {6, 7}),)
    ),
    "nothing known": nothing_known,
    "counters only": counters_only,
    "no calibration": lambda: without_calibration(example_report()),
    "no domains": lambda: example_report(names=()),
    "one domain": lambda: example_report(names=("math",)),
    "forty data sets": lambda: example_report(names=tuple(f"set {i}" for i in range(40))),
    "a name of 300 characters": lambda: example_report(names=("n" * 300, "<b>&amp;%{x}$", "\x00\x1b[31m")),
    "one position": lambda: example_report(gamma=1),
    "sixteen positions": lambda: example_report(gamma=16),
    "one prompt": lambda: replace(example_report(), groups=(group("all", 200, 1),)),
}


@pytest.mark.parametrize("name", POOR)
def test_poor_input_still_makes_a_page(name: str) -> None:
    """Whatever is missing, the page stands, is small and says nothing like NaN or None."""
    page = render_page(POOR[name]())
    body = page[: page.index('<script type="application/json"')]
    assert len(page.encode()) < 7 * MEGABYTE
    assert "nan" not in re.sub(r"<[^>]*>", " ", body).lower().split()
    assert ">None<" not in body
    assert "</html>" in page


def test_missing_positions_are_named() -> None:
    """A position without rounds says so in its figure and its table row."""
    page = render_page(POOR["a position nobody reached"]())
    assert "<b>position 7</b>: no rounds" in page


def test_page_is_deterministic() -> None:
    """The same report gives the same bytes: no clock, no random ids."""
    assert render_page(example_report()) == render_page(example_report())


def test_page_loads_nothing() -> None:
    """Outside plotly.js there is no address to load from, and the policy of the page forbids loading."""
    page = render_page(example_report())
    head = page[: page.index('<script type="application/json"')]
    assert not re.search(r"""(src|href)=["'](?!#)""", head)
    assert "url(" not in head
    assert "default-src 'none'" in head
    assert page.count("* plotly.js v") == 1


def test_names_cannot_act() -> None:
    """Markup in a name is text in HTML, in a figure and in the JSON inside the script element."""
    report = example_report(
        names=("</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "%{x} $x^2$")
    )
    page = render_page(report)
    figures = page[page.index('<script type="application/json"') :]
    figures = figures[: figures.index("</script>")]
    assert page.count("</script>") == 3
    assert "<img" not in page.lower().split("/* plotly")[0][: page.index('<script type="application/json"')]
    assert "<" not in figures[figures.index(">") + 1 :]
    labels = json.dumps([f["layout"] for f in json.loads(figures[figures.index(">") + 1 :])["figures"]])
    assert "<script" not in labels
    assert "%{x}" not in labels


def test_figures_hold_aggregates_only() -> None:
    """No array of a figure is longer than bins, grid or groups: nothing grows with the rounds."""
    for section in report_sections(example_report()):
        for panel in section.panels:
            for trace in figure_json(panel.figure)["data"]:
                assert all(len(value) <= 256 for value in trace.values() if isinstance(value, list))


def test_empty_bins_have_no_point_in_the_reliability_diagram() -> None:
    """A bin without rounds is no point on the diagonal (calibration-framework 52); the axis says prefix acceptance."""
    first = example_report().groups[0].raw.positions[0]
    ends = tuple(
        b if i in (0, len(first.bins) - 1) else replace(b, n=0, predicted=None, observed=UNDEFINED)
        for i, b in enumerate(first.bins)
    )
    drawn = figure_json(draw_reliability(replace(first, bins=ends), None))
    curve = next(trace for trace in drawn["data"] if trace.get("customdata"))
    assert curve["x"] == [ends[0].predicted, ends[-1].predicted]
    assert drawn["layout"]["yaxis"]["title"]["text"] == "observed prefix acceptance"


def test_figures_are_strict_json() -> None:
    """What is undefined is null in a figure, never NaN."""
    text = render_figures(report_sections(nothing_known()))
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def test_every_section_has_sentence_table_and_alternative_text() -> None:
    """Each figure family says what to conclude and lists its numbers."""
    for section in report_sections(example_report()):
        assert section.sentence.endswith((".", "½ is guessing)."))
        assert section.tables
        assert all(table.rows for table in section.tables)
        assert all(len(row) == len(table.header) for table in section.tables for row in table.rows)
        assert section.panels


def test_ids_are_unique() -> None:
    """No two elements of the page share an id."""
    page = render_page(example_report(names=tuple(f"set {i}" for i in range(40))))
    ids = re.findall(r'\sid="([^"]+)"', page[: page.index('<script type="application/json"')])
    assert len(ids) == len(set(ids))


def test_no_method_is_told_by_colour_alone() -> None:
    """Raw and calibrated differ in dash and marker, drafters in marker or pattern."""
    from dspark_calib_reports.figures.theme import CALIBRATED, OTHERS, RAW

    assert RAW.dash != CALIBRATED.dash
    assert RAW.symbol != CALIBRATED.symbol
    assert len({(method.dash, method.symbol) for method in OTHERS}) == len(OTHERS)


def test_interval_of_one_prompt_is_a_dash() -> None:
    """A number without an interval is shown without one."""
    from dspark_calib_reports.numerals import with_interval

    assert with_interval(Estimate(value=0.25)) == "0.250"
