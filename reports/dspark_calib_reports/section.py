"""What a page is made of: sections with a sentence, figures and the table of the same numbers."""

from dataclasses import dataclass

import plotly.graph_objects as go

from dspark_calib_reports.figures.theme import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Text cells; the first column heads its row. `title` is empty where the section's or panel's serves."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot of a section.

    Attributes:
        key: Its id on the page and its file name.
        title: What tells it from the other plots of the section; empty where it is alone.
        figure: The plot.
        finding: What it alone shows, or empty.
    """

    key: str
    title: str
    figure: go.Figure
    finding: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One figure family on the page.

    Attributes:
        key: Anchor on the page.
        chapter: Heading it stands under.
        title: What is shown.
        sentence: What to conclude, chosen by rule; also the alternative text of the panels.
        panels: The plots; none where there is nothing to draw.
        tables: The numbers behind them.
        note: How to read it, one or two sentences.
        legend: Methods drawn, for panels that share one legend.
        table_a_panel: Whether the tables belong to the panels one by one.
    """

    key: str
    chapter: str
    title: str
    sentence: str
    panels: tuple[Panel, ...]
    tables: tuple[Table, ...]
    note: str = ""
    legend: tuple[Method, ...] = ()
    table_a_panel: bool = False


def table_titles(section: Section) -> tuple[str, ...]:
    """Return what stands over each table: its own title, that of its panel, or that of the section."""
    if section.table_a_panel:
        return tuple(panel.title for panel in section.panels)
    return tuple(table.title or section.title for table in section.tables)
