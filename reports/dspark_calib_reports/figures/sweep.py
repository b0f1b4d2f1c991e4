"""Threshold sweep: tokens kept and thrown away per step, and the acceptance rate (the paper's Figure 5)."""

import plotly.graph_objects as go

from dspark_calib.summary.measures import Group, ThresholdPoint
from dspark_calib_reports.figures.theme import ACCEPTED, RATE, REJECTED, blank_figure
from dspark_calib_reports.numerals import decimal, percent, shown_name
from dspark_calib_reports.section import Table


def draw_sweep(points: tuple[ThresholdPoint, ...]) -> go.Figure:
    """Draw one group's stacked bars and, on the right axis, its acceptance rate."""
    figure = blank_figure(x="threshold on c_k", y="tokens per step", height=300)
    x = [point.threshold for point in points]
    figure.add_bar(x=x, y=[p.accepted for p in points], name="accepted", marker={"color": ACCEPTED.color})
    figure.add_bar(
        x=x,
        y=[p.rejected for p in points],
        name="rejected",
        marker={"color": REJECTED.color, "pattern": {"shape": "/", "solidity": 0.35}},
    )
    figure.add_scatter(
        x=x,
        y=[p.acceptance_rate for p in points],
        yaxis="y2",
        mode="lines+markers",
        name="acceptance rate",
        line={"color": RATE.color, "width": 2},
        marker={"color": RATE.color, "size": 7},
    )
    figure.update_layout(
        barmode="stack",
        showlegend=False,
        xaxis={"tickmode": "linear", "dtick": 0.2},
        yaxis2={
            "overlaying": "y",
            "side": "right",
            "range": [0, 1],
            "dtick": 0.25,
            "tickformat": ".0%",
            "showgrid": False,
        },
        margin={"t": 12, "r": 48},
    )
    return figure


def tabulate_sweep(groups: tuple[Group, ...]) -> Table:
    """List every threshold of every group, raw and calibrated."""
    rows = [
        (
            shown_name(group.name),
            label,
            decimal(point.threshold),
            decimal(point.accepted, 3),
            decimal(point.rejected, 3),
            percent(point.acceptance_rate),
        )
        for group in groups
        if group.sweep is not None
        for label, points in (("raw", group.sweep.raw), ("calibrated", group.sweep.calibrated or ()))
        for point in points
    ]
    return Table(
        header=("group", "confidence", "threshold", "accepted", "rejected", "acceptance rate"), rows=tuple(rows)
    )
