"""Slices: bias along the confidence of position 1, the prompt's length and the depth in the response."""

import plotly.graph_objects as go

from dspark_calib.summary.details import SliceCell, Slices
from dspark_calib_reports.figures.theme import CALIBRATED, RAW, add_estimates, add_level, blank_figure
from dspark_calib_reports.numerals import count, decimal, fraction, interval, signed
from dspark_calib_reports.section import Table

TITLES = {
    "confidence_1": "confidence of position 1",
    "prompt_length": "prompt length, tokens",
    "depth": "depth in the response, tokens",
}


def draw_slices(slices: Slices) -> go.Figure:
    """Draw predicted minus observed survival, averaged over positions, cell by cell."""
    figure = blank_figure(x=TITLES[slices.quantity], y="predicted − observed", height=300)
    names = [cell_name(slices, cell) for cell in slices.cells]
    add_level(figure, names, [0.0] * len(names), "no bias")
    add_estimates(figure, names, [cell.raw_bias for cell in slices.cells], RAW)
    if any(cell.calibrated_bias.value is not None for cell in slices.cells):
        add_estimates(figure, names, [cell.calibrated_bias for cell in slices.cells], CALIBRATED)
    figure.update_xaxes(type="category")
    figure.update_yaxes(tickformat="+.2f")
    figure.update_layout(showlegend=False, margin={"t": 12})
    return figure


def tabulate_slices(slices: Slices) -> Table:
    """List the cells of one quantity."""
    rows = tuple(
        (
            cell_name(slices, cell),
            count(cell.n),
            count(cell.prompts),
            fraction(cell.predicted),
            fraction(cell.observed),
            signed(cell.raw_bias.value),
            interval(cell.raw_bias),
            signed(cell.calibrated_bias.value),
            interval(cell.calibrated_bias),
        )
        for cell in slices.cells
    )
    header = (TITLES[slices.quantity], "rounds", "prompts", "predicted raw", "observed")
    return Table(header=(*header, "bias raw", "95 % interval", "bias calibrated", "95 % interval"), rows=rows)


def cell_name(slices: Slices, cell: SliceCell) -> str:
    """Write the range of one cell."""
    if slices.quantity == "confidence_1":
        return f"{decimal(cell.low, 1)}–{decimal(cell.high, 1)}"
    return f"from {cell.low:,.0f}" if cell.high is None else f"{cell.low:,.0f}–{cell.high:,.0f}"
