"""The objective of the fit against the temperature of one position, with the chosen temperature and its interval."""

import plotly.graph_objects as go

from dspark_calib.summary.details import TemperatureCurve
from dspark_calib.summary.record import TemperatureTuple
from dspark_calib_reports.figures.theme import CALIBRATED, GREY, RAW, blank_figure
from dspark_calib_reports.numerals import decimal
from dspark_calib_reports.section import Table

OBJECTIVES = {"ece": "ECE", "brier": "Brier", "nll": "log loss"}


def draw_temperature_curve(curve: TemperatureCurve, objective: str) -> go.Figure:
    """Draw one position's objective; a flat valley is a temperature that the data do not pin down."""
    figure = blank_figure(x="temperature", y=f"{OBJECTIVES[objective]} in sample", height=260)
    figure.add_scatter(
        x=list(curve.temperatures),
        y=list(curve.objective),
        mode="lines",
        name=OBJECTIVES[objective],
        line={"color": CALIBRATED.color, "width": 2},
    )
    if curve.interval is not None:
        figure.add_vrect(
            x0=curve.interval[0], x1=curve.interval[1], fillcolor=CALIBRATED.color, opacity=0.15, line_width=0
        )
    figure.add_vline(x=1.0, line={"color": GREY, "dash": "dot", "width": 1.5})
    figure.add_vline(x=curve.chosen, line={"color": RAW.color, "width": 2})
    figure.update_layout(
        showlegend=False,
        margin={"t": 12},
        xaxis={
            "type": "log",
            "tickvals": [0.125, 0.25, 0.5, 1, 2, 4, 8],
            "ticktext": ["⅛", "¼", "½", "1", "2", "4", "8"],
        },
        yaxis={"rangemode": "tozero"},
    )
    return figure


def tabulate_temperatures(temperatures: TemperatureTuple) -> Table:
    """List each temperature with its interval, its spread over cross-fits and what the fit said about it."""
    rows = tuple(
        (
            str(k + 1),
            decimal(t, 3),
            _interval(temperatures.intervals[k]),
            _interval(temperatures.cross_fits[k]),
            ", ".join(temperatures.flags[k]) or "–",
        )
        for k, t in enumerate(temperatures.values)
    )
    return Table(header=("position", "T", "95 % interval", "cross-fits", "flags"), rows=rows, title="Temperatures")


def tabulate_curves(curves: tuple[TemperatureCurve, ...]) -> Table:
    """List the curves side by side, one row a temperature; curves share their grid or are listed alone."""
    rows = [
        (str(curve.position), decimal(t, 3), decimal(value, 4))
        for curve in curves
        for t, value in zip(curve.temperatures, curve.objective, strict=True)
    ]
    return Table(header=("position", "T", "objective in sample"), rows=tuple(rows), title="Objective curves")


def _interval(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"[{decimal(interval[0], 3)}, {decimal(interval[1], 3)}]"
