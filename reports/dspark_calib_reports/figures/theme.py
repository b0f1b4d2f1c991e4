"""The look of every figure: one colour, dash and marker a method, the same everywhere.

Colours have a contrast of at least 3.5 on the light and on the dark page and stay apart for the
common kinds of colour blindness; no method is told by colour alone. Text, grid and background come
from the page's theme, so that one drawing serves both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dspark_calib.metrics.estimate import Estimate
from dspark_calib.summary.measures import Group

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Helvetica, Arial, sans-serif'
GREY = "#7d858f"
HEAT = ((0.0, "#f4f1ea"), (0.5, "#f0c592"), (1.0, "#d9804a"))
HEAT_INK = "#1c232c"  # readable on the whole scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How one method is drawn, wherever it appears; `dash` "bar" and "hatched" are bars."""

    label: str
    color: str
    dash: str
    symbol: str


RAW = Method(label="raw", color="#d1662b", dash="dash", symbol="circle-open")
CALIBRATED = Method(label="calibrated", color="#2b7fc4", dash="solid", symbol="diamond")
ORACLE = Method(label="oracle", color="#1f9470", dash="dot", symbol="square-open")
DRAFT_PROB = Method(label="draft probability", color="#9a6fc4", dash="dot", symbol="square-open")
MARGIN = Method(label="margin", color="#1f9470", dash="dashdot", symbol="triangle-up")
ENTROPY = Method(label="entropy", color="#a07d1c", dash="longdash", symbol="x")
OTHERS = (
    CALIBRATED,
    RAW,
    MARGIN,
    DRAFT_PROB,
    ENTROPY,
    Method(label="", color="#cc5c93", dash="longdashdot", symbol="star"),
    Method(label="", color="#2a93a3", dash="dot", symbol="cross"),
)
ACCEPTED = Method(label="accepted tokens", color=CALIBRATED.color, dash="bar", symbol="")
REJECTED = Method(label="rejected tokens", color=GREY, dash="hatched", symbol="")
RATE = Method(label="acceptance rate (right axis)", color=RAW.color, dash="solid", symbol="circle")
PROXIES = {"draft_prob": DRAFT_PROB, "margin": MARGIN, "entropy": ENTROPY}


def page_themes() -> dict[str, Any]:
    """Return the two layouts that the page puts under every figure."""
    return {"light": _theme("#1c232c", "#dfe3e8", "#ffffff"), "dark": _theme("#e6e9ed", "#333c47", "#12161c")}


def methods_of(group: Group) -> tuple[Method, ...]:
    """Return the methods drawn for a group: raw, and calibrated where there is a calibration."""
    return (RAW,) if group.calibrated is None else (RAW, CALIBRATED)


def blank_figure(*, x: str, y: str, height: int = 320) -> go.Figure:
    """Return an empty figure with its two axis titles."""
    figure = go.Figure()
    figure.update_layout(
        template="none",
        height=height,
        xaxis={"title": {"text": x}},
        yaxis={"title": {"text": y}},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    )
    return figure


def position_axis(figure: go.Figure, gamma: int) -> None:
    """Number the x axis by draft positions 1 … γ."""
    figure.update_xaxes(
        title_text="draft position", tickmode="linear", tick0=1, dtick=1 if gamma <= 16 else 4, range=[0.5, gamma + 0.5]
    )


def line_of(method: Method, name: str | None = None) -> dict[str, Any]:
    """Return the trace options that make a line recognisable without its colour."""
    return {
        "mode": "lines+markers",
        "name": name or method.label,
        "line": {"color": method.color, "dash": method.dash, "width": 2},
        "marker": {
            "symbol": method.symbol,
            "size": 8,
            "color": method.color,
            "line": {"color": method.color, "width": 2},
        },
    }


def add_estimates(
    figure: go.Figure,
    x: Sequence[float | str],
    estimates: Sequence[Estimate],
    method: Method,
    *,
    name: str | None = None,
) -> None:
    """Draw numbers with their intervals; what is undefined leaves a gap."""
    figure.add_scatter(
        x=list(x),
        y=[item.value for item in estimates],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_above(item) for item in estimates],
            "arrayminus": [_below(item) for item in estimates],
            "color": method.color,
            "thickness": 1.5,
            "width": 3,
        },
        connectgaps=False,
        **line_of(method, name),
    )


def add_level(figure: go.Figure, x: Sequence[float | str], y: Sequence[float | None], name: str) -> None:
    """Draw a reference that data are held against: a floor, a diagonal, a zero."""
    figure.add_scatter(x=list(x), y=list(y), mode="lines", name=name, line={"color": GREY, "dash": "dot", "width": 1.5})


def _above(item: Estimate) -> float | None:
    return None if item.value is None or item.high is None else max(item.high - item.value, 0.0)


def _below(item: Estimate) -> float | None:
    return None if item.value is None or item.low is None else max(item.value - item.low, 0.0)


def _theme(ink: str, grid: str, paper: str) -> dict[str, Any]:
    axis = {
        "gridcolor": grid,
        "linecolor": GREY,
        "zerolinecolor": GREY,
        "showline": True,
        "ticks": "outside",
        "tickcolor": GREY,
        "automargin": True,
        "title": {"standoff": 8},
    }
    return {
        "font": {"family": FONT, "size": 13, "color": ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 16, "t": 28, "b": 48},
        "xaxis": axis,
        "yaxis": axis,
        "hoverlabel": {"bgcolor": paper, "font": {"color": ink, "family": FONT}, "bordercolor": GREY},
        "legend": {"bgcolor": "rgba(0,0,0,0)"},
        "bargap": 0.12,
    }
