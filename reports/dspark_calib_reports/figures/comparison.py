"""NEW against OLD: paired differences with intervals, what got worse first."""

import plotly.graph_objects as go

from dspark_calib.summary.contrasts import Comparison, ComparisonRow
from dspark_calib_reports.figures.theme import GREY, blank_figure
from dspark_calib_reports.numerals import fraction, interval, plot_text, shown_name, signed
from dspark_calib_reports.section import Table

MEASURES = {
    "ece": "ECE",
    "mean_ece": "mean ECE",
    "bias": "|bias|",
    "brier": "Brier",
    "auroc": "AUROC",
    "conditional_acceptance": "conditional acceptance",
    "accepted_length": "accepted length τ",
}
LOOKS = {
    "worse": ("#d1662b", "triangle-down", "worse"),
    "better": ("#2b7fc4", "triangle-up", "better"),
    "unclear": (GREY, "circle-open", "not distinguishable"),
}
SHOWN = 24


def draw_comparison(comparison: Comparison) -> go.Figure:
    """Draw the leading differences with their intervals, all in standard errors: to the right is worse."""
    rows = comparison.rows[:SHOWN]
    figure = blank_figure(x="standard errors", y="", height=120 + 24 * len(rows))
    for change, (color, symbol, label) in LOOKS.items():
        chosen = [(i, row) for i, row in enumerate(rows) if row.change == change]
        if chosen:
            _add_rows(figure, chosen, color, symbol, label)
    figure.add_vline(x=0, line={"color": GREY, "dash": "dot", "width": 1.5})
    labels = [plot_text(row_name(row)) for row in rows]
    figure.update_yaxes(tickvals=list(range(len(rows))), ticktext=labels, autorange="reversed", zeroline=False)
    return figure


def tabulate_comparison(comparison: Comparison) -> Table:
    """List every row, worst first."""
    rows = tuple(
        (
            row_name(row),
            fraction(row.old),
            fraction(row.new),
            signed(row.difference.value),
            interval(row.difference),
            LOOKS[row.change][2],
        )
        for row in comparison.rows
    )
    return Table(header=("measure", "OLD", "NEW", "difference", "95 % interval", "reading"), rows=rows)


def row_name(row: ComparisonRow) -> str:
    """Write which number of which group a row compares."""
    where = "" if row.position is None else f" at {row.position}"
    return f"{shown_name(row.group)} · {MEASURES[row.measure]}{where}"


def _add_rows(figure: go.Figure, chosen: list[tuple[int, ComparisonRow]], color: str, symbol: str, label: str) -> None:
    differences = [row.harm for _, row in chosen]
    figure.add_scatter(
        x=[d.value for d in differences],
        y=[i for i, _ in chosen],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [_width(d.value, d.high) for d in differences],
            "arrayminus": [_width(d.low, d.value) for d in differences],
            "color": color,
        },
        mode="markers",
        name=label,
        marker={"color": color, "symbol": symbol, "size": 9},
    )


def _width(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else high - low
