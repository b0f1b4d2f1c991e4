"""A report as one HTML file that opens offline.

plotly.js is inlined once, figures as one JSON block, and a content security policy lets only these
scripts run, so that nothing from the data can act. The same report gives the same bytes.
"""

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import plotly.graph_objects as go
import plotly.offline
from markupsafe import Markup

from dspark_calib import __version__
from dspark_calib.summary.record import Report
from dspark_calib_reports.chapters import CHAPTERS, report_sections
from dspark_calib_reports.figures.theme import Method, page_themes
from dspark_calib_reports.first_screen import first_screen
from dspark_calib_reports.section import Panel, Section, table_titles

SIGNIFICANT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TitledTable:
    """A table of the page with the words over it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePanel:
    """A plot as the template reads it; `alt` states the finding, `table` stands under this plot alone."""

    key: str
    title: str
    finding: str
    alt: str
    height: int
    table: TitledTable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A section as the template reads it."""

    key: str
    title: str
    sentence: str
    note: str
    legend: tuple[Method, ...]
    panels: tuple[PagePanel, ...]
    tables: tuple[TitledTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A heading and its sections."""

    key: str
    title: str
    sections: tuple[PageSection, ...]


def render_page(report: Report) -> str:
    """Return the whole page."""
    sections = report_sections(report)
    script = _asset("page.js")
    plotly_js = _plotly_js()
    hashes = " ".join(f"'sha256-{_digest(text)}'" for text in (plotly_js, script))
    return _template().render(
        **first_screen(report),
        chapters=_chapters(sections),
        version=__version__,
        css=Markup(_asset("page.css")),  # noqa: S704 - our own file
        script=Markup(script),  # noqa: S704 - our own file
        plotly=Markup(plotly_js),  # noqa: S704 - plotly's own file
        script_hashes=Markup(hashes),  # noqa: S704 - base64
        figures=Markup(render_figures(sections)),  # noqa: S704 - "<" is escaped inside
    )


def render_figures(sections: tuple[Section, ...]) -> str:
    """Return every figure and both themes as JSON that may stand inside a script element."""
    figures = [{"key": panel.key, **figure_json(panel.figure)} for section in sections for panel in section.panels]
    value = {"themes": page_themes(), "figures": figures}
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace("\N{LINE SEPARATOR}", "\\u2028")


def figure_json(figure: go.Figure) -> dict[str, Any]:
    """Return the figure as plain JSON values, numbers rounded to what can be seen."""
    value = figure.to_plotly_json()
    layout = {key: item for key, item in value["layout"].items() if key != "template"}
    return {"data": _rounded(value["data"]), "layout": _rounded(layout)}


def _chapters(sections: tuple[Section, ...]) -> tuple[Chapter, ...]:
    filled = ((i, title, [s for s in sections if s.chapter == title]) for i, title in enumerate(CHAPTERS))
    return tuple(
        Chapter(key=f"chapter-{i}", title=title, sections=tuple(_page_section(s) for s in inside))
        for i, title, inside in filled
        if inside
    )


def _page_section(section: Section) -> PageSection:
    titles = zip(table_titles(section), section.tables, strict=True)
    tables = tuple(TitledTable(title=title, header=t.header, rows=t.rows) for title, t in titles)
    own = tables if section.table_a_panel else (None,) * len(section.panels)
    return PageSection(
        key=section.key,
        title=section.title,
        sentence=section.sentence,
        note=section.note,
        legend=section.legend,
        panels=tuple(_page_panel(section, panel, table) for panel, table in zip(section.panels, own, strict=True)),
        tables=() if section.table_a_panel else tables,
    )


def _page_panel(section: Section, panel: Panel, table: TitledTable | None) -> PagePanel:
    own = ": ".join(words for words in (panel.title, panel.finding) if words)
    alt = f"{section.title}: {own}. {section.sentence}" if own else f"{section.title}: {section.sentence}"
    height = panel.figure.layout.height
    return PagePanel(key=panel.key, title=panel.title, finding=panel.finding, alt=alt, height=height, table=table)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value


@cache
def _plotly_js() -> str:
    source: str = plotly.offline.get_plotlyjs()
    # the parser of HTML ends a script at this text wherever it stands
    return source.replace("</script", "<\\/script")


def _asset(name: str) -> str:
    return resources.files("dspark_calib_reports.page").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _template() -> jinja2.Template:
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(_asset("page.html.jinja"))
