"""Ranking: AUROC of prefix survival before and after, and the head against the free proxies."""

import plotly.graph_objects as go

from dspark_calib.summary.details import Proxy
from dspark_calib.summary.measures import Group
from dspark_calib_reports.figures.theme import (
    CALIBRATED,
    PROXIES,
    RAW,
    add_estimates,
    add_level,
    blank_figure,
    position_axis,
)
from dspark_calib_reports.numerals import fraction, interval
from dspark_calib_reports.section import Table


def draw_auroc(group: Group) -> go.Figure:
    """Draw AUROC of a_k by position, raw and calibrated; ½ is guessing."""
    figure = blank_figure(x="", y="AUROC of prefix survival")
    positions = [row.position for row in group.raw.positions]
    add_level(figure, [0.5, len(positions) + 0.5], [0.5, 0.5], "guessing")
    add_estimates(figure, positions, [row.auroc for row in group.raw.positions], RAW)
    if group.calibrated is not None:
        add_estimates(figure, positions, [row.auroc for row in group.calibrated.positions], CALIBRATED)
    position_axis(figure, len(positions))
    return figure


def draw_proxies(group: Group, proxies: tuple[Proxy, ...]) -> go.Figure:
    """Draw AUROC of c_k given the prefix beside that of the free proxies."""
    figure = blank_figure(x="", y="AUROC given the prefix")
    positions = [row.position for row in group.raw.positions]
    add_level(figure, [0.5, len(positions) + 0.5], [0.5, 0.5], "guessing")
    add_estimates(figure, positions, [row.auroc_conditional for row in group.raw.positions], RAW, name="confidence")
    for proxy in proxies:
        add_estimates(figure, positions, proxy.auroc_conditional, PROXIES[proxy.name])
    position_axis(figure, len(positions))
    return figure


def tabulate_auroc(group: Group) -> Table:
    """List AUROC of a_k by position."""
    after = group.calibrated.positions if group.calibrated else (None,) * len(group.raw.positions)
    rows = tuple(
        (
            str(raw.position),
            fraction(raw.auroc.value),
            interval(raw.auroc),
            fraction(new.auroc.value if new else None),
            interval(new.auroc) if new else fraction(None),
        )
        for raw, new in zip(group.raw.positions, after, strict=True)
    )
    return Table(header=("position", "raw", "95 % interval", "calibrated", "95 % interval"), rows=rows)


def tabulate_proxies(group: Group, proxies: tuple[Proxy, ...]) -> Table:
    """List AUROC given the prefix of the confidence and of each proxy."""
    rows = tuple(
        (
            str(row.position),
            fraction(row.auroc_conditional.value),
            interval(row.auroc_conditional),
            *(cell for p in proxies for cell in _cells(p, row.position)),
        )
        for row in group.raw.positions
    )
    names = (cell for p in proxies for cell in (PROXIES[p.name].label, "95 % interval"))
    return Table(header=("position", "confidence", "95 % interval", *names), rows=rows)


def _cells(proxy: Proxy, position: int) -> tuple[str, str]:
    estimate = proxy.auroc_conditional[position - 1]
    return (fraction(estimate.value), interval(estimate))
