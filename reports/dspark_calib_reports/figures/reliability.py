"""Reliability per position: what was promised against what came (the paper's Figure 6)."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dspark_calib.summary.measures import PositionMeasures, ReliabilityBin
from dspark_calib_reports.figures.theme import CALIBRATED, GREY, RAW, Method, add_level, blank_figure, line_of
from dspark_calib_reports.numerals import count, fraction, interval
from dspark_calib_reports.section import Table


def draw_reliability(raw: PositionMeasures, calibrated: PositionMeasures | None) -> go.Figure:
    """Draw both curves with clustered bands over the histogram of the raw predictions."""
    figure = blank_figure(x="predicted survival", y="observed prefix acceptance", height=300)
    _add_histogram(figure, raw.bins)
    add_level(figure, [0, 1], [0, 1], "perfect")
    for method, measures in ((RAW, raw), (CALIBRATED, calibrated)):
        if measures is not None:
            _add_curve(figure, measures.bins, method)
    tallest = max(b.n for b in raw.bins)  # the histogram stays in the lower part, under the curves
    figure.update_layout(
        showlegend=False,
        margin={"t": 12},
        xaxis={"range": [0, 1], "tickmode": "linear", "dtick": 0.25},
        yaxis={"range": [0, 1.02], "tickmode": "linear", "dtick": 0.25, "overlaying": "y2"},
        yaxis2={
            "side": "right",
            "showgrid": False,
            "showticklabels": False,
            "ticks": "",
            "showline": False,
            "range": [0, 2.5 * tallest],
        },
    )
    return figure


def tabulate_reliability(raw: PositionMeasures, calibrated: PositionMeasures | None) -> Table:
    """List every bin of one position, empty ones too."""
    header = ("bin", "n raw", "predicted raw", "observed raw", "95 % interval")
    if calibrated is None:
        return Table(header=header, rows=tuple((_edges(b), *_cells(b)) for b in raw.bins))
    pairs = zip(raw.bins, calibrated.bins, strict=True)
    return Table(
        header=(*header, "n calibrated", "predicted calibrated", "observed calibrated", "95 % interval"),
        rows=tuple((_edges(before), *_cells(before), *_cells(after)) for before, after in pairs),
    )


def _add_histogram(figure: go.Figure, bins: Sequence[ReliabilityBin]) -> None:
    figure.add_bar(
        x=[(b.low + b.high) / 2 for b in bins],
        y=[b.n for b in bins],
        width=[b.high - b.low for b in bins],
        yaxis="y2",
        name="rounds",
        marker={"color": GREY, "opacity": 0.3},
        hovertemplate="%{y:,} rounds<extra></extra>",
    )


def _add_curve(figure: go.Figure, bins: Sequence[ReliabilityBin], method: Method) -> None:
    filled = [b for b in bins if b.n > 0 and b.observed.value is not None]
    banded = [b for b in filled if b.observed.low is not None]
    figure.add_scatter(
        x=[b.predicted for b in banded] + [b.predicted for b in reversed(banded)],
        y=[b.observed.high for b in banded] + [b.observed.low for b in reversed(banded)],
        fill="toself",
        mode="lines",
        line={"width": 0, "color": method.color},
        fillcolor=method.color,
        opacity=0.18,
        hoverinfo="skip",
        name=f"{method.label} band",
    )
    figure.add_scatter(
        x=[b.predicted for b in filled],
        y=[b.observed.value for b in filled],
        customdata=[[b.n, interval(b.observed)] for b in filled],
        hovertemplate="predicted %{x:.3f}<br>observed %{y:.3f} %{customdata[1]}<br>n %{customdata[0]:,}",
        **line_of(method),
    )


def _edges(b: ReliabilityBin) -> str:
    return f"{b.low:.2f}–{b.high:.2f}"


def _cells(b: ReliabilityBin) -> tuple[str, ...]:
    return (count(b.n), fraction(b.predicted), fraction(b.observed.value), interval(b.observed))
