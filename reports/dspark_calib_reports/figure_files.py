"""Each figure as a file: an HTML fragment always, SVG and PNG where a renderer works.

Fragments hold no plotly.js of their own: the page that takes them in loads it once (plotly.js 2 or newer).
Static images need kaleido and a Chrome it can start; whether they do is found out by drawing one.
"""

import html
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_calib.summary.record import Report
from dspark_calib_reports.chapters import report_sections
from dspark_calib_reports.figures.theme import page_themes
from dspark_calib_reports.page.render import figure_json
from dspark_calib_reports.section import Panel, Section

STATIC = ("svg", "png")
WIDTH = 820


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureFiles:
    """What was written: names of fragments, names of images, and why there are no images where there are none."""

    fragments: tuple[str, ...]
    images: tuple[str, ...]
    no_images: str | None


def write_figures(report: Report, folder: Path) -> FigureFiles:
    """Write every figure of the report into an existing folder."""
    panels = [(section, panel) for section in report_sections(report) for panel in section.panels]
    fragments = []
    for section, panel in panels:
        name = f"{panel.key}.html"
        (folder / name).write_text(render_fragment(section, panel), encoding="utf-8")
        fragments.append(name)
    images, reason = _write_images([panel for _, panel in panels], folder)
    return FigureFiles(fragments=tuple(fragments), images=images, no_images=reason)


def render_fragment(section: Section, panel: Panel) -> str:
    """Return one figure as an HTML fragment for a page that has loaded plotly.js."""
    value = figure_json(panel.figure)
    value["layout"]["template"] = {"layout": page_themes()["light"]}
    data = json.dumps(value, allow_nan=False, sort_keys=True, separators=(",", ":")).replace("<", "\\u003c")
    key, alt = html.escape(f"dspark-{panel.key}"), html.escape(f"{section.title}: {section.sentence}")
    return (
        f'<figure><div id="{key}" role="img" aria-label="{alt}"></div>\n'
        f"<script>(f => Plotly.newPlot({json.dumps(f'dspark-{panel.key}')}, f.data, f.layout, "
        f"{{displayModeBar: false, responsive: true}}))({data});</script></figure>\n"
    )


def _write_images(panels: list[Panel], folder: Path) -> tuple[tuple[str, ...], str | None]:
    try:
        import kaleido
    except ImportError:
        return (), "kaleido is not installed (pip install kaleido)"
    names = [(panel, f"{panel.key}.{kind}") for kind in STATIC for panel in panels]
    figures = [
        {"fig": _printable(panel), "path": folder / name, "opts": _options(panel, name)} for panel, name in names
    ]
    try:
        kaleido.write_fig_from_object_sync(figures, kopts={"mathjax": False})  # its default would come from the network
    except (RuntimeError, OSError, ValueError) as error:
        return (), f"kaleido could not draw: {_first_line(error)}"
    missing = [name for _, name in names if not (folder / name).is_file()]
    if missing:
        return (), "kaleido drew nothing; it needs a Chrome or Chromium it can start (see BROWSER_PATH)"
    return tuple(name for _, name in names), None


def _printable(panel: Panel) -> dict[str, Any]:
    value = figure_json(panel.figure)
    theme = page_themes()["light"] | {"paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff"}
    value["layout"]["template"] = {"layout": theme}
    return value


def _options(panel: Panel, name: str) -> dict[str, str | int]:
    return {"format": name.rpartition(".")[2], "width": WIDTH, "height": int(panel.figure.layout.height)}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
