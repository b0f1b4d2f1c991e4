"""Groups side by side: the domain × position heat map and the transfer matrix."""

from collections.abc import Sequence

import plotly.graph_objects as go

from dspark_calib.calibration.tables import Baseline
from dspark_calib.summary.details import Transfer
from dspark_calib.summary.measures import Group, Measures
from dspark_calib_reports.figures.theme import HEAT, HEAT_INK, blank_figure
from dspark_calib_reports.numerals import count, decimal, fraction, interval, plot_text, shown_name
from dspark_calib_reports.section import Table

ROW_HEIGHT = 30
ECE_FULL_COLOR = 0.1  # the same colour means the same ECE in every report


def draw_heat_map(groups: tuple[Group, ...]) -> go.Figure:
    """Draw ECE of every group and position: calibrated where there is a calibration, else raw."""
    gamma = len(groups[0].raw.positions)
    values = [[row.ece.value for row in _judged(group).positions] for group in groups]
    figure = _matrix(values, [str(k) for k in range(1, gamma + 1)], [group.name for group in groups])
    figure.update_xaxes(title_text="draft position", side="bottom")
    return figure


def draw_transfer(transfer: Transfer) -> go.Figure:
    """Draw mean ECE judged on the column under temperatures fitted on the row."""
    figure = _matrix(transfer.mean_ece, [plot_text(name) for name in transfer.judged_on], list(transfer.fitted_on))
    figure.update_xaxes(title_text="judged on", side="bottom")
    figure.update_yaxes(title_text="fitted on")
    return figure


def draw_baselines(baselines: tuple[Baseline, ...]) -> go.Figure:
    """Draw held-out ECE of every way of fitting by position."""
    gamma = len(baselines[0].ece)
    figure = _matrix([b.ece for b in baselines], [str(k) for k in range(1, gamma + 1)], [b.name for b in baselines])
    figure.update_xaxes(title_text="draft position", side="bottom")
    return figure


def tabulate_baselines(baselines: tuple[Baseline, ...]) -> Table:
    """List held-out ECE and Brier of every way of fitting."""
    gamma = len(baselines[0].ece)
    header = ("method", *(f"ECE {k + 1}" for k in range(gamma)), *(f"Brier {k + 1}" for k in range(gamma)))
    rows = tuple((b.name, *map(fraction, b.ece), *map(fraction, b.brier)) for b in baselines)
    return Table(header=header, rows=rows)


def tabulate_groups(groups: tuple[Group, ...]) -> Table:
    """List rounds, prompts, accepted length and mean ECE before and after of every group."""
    rows = tuple(
        (
            shown_name(group.name),
            count(group.rounds),
            count(group.prompts),
            decimal(group.acceptance.accepted_length.value),
            fraction(group.raw.mean_ece.value),
            fraction(group.calibrated.mean_ece.value if group.calibrated else None),
            interval(_judged(group).mean_ece),
            fraction(group.raw.mean_ece_floor),
            *(fraction(row.ece.value) for row in _judged(group).positions),
        )
        for group in groups
    )
    positions = tuple(f"ECE {k + 1}" for k in range(len(groups[0].raw.positions)))
    header = ("group", "rounds", "prompts", "τ", "mean ECE raw", "calibrated", "95 % interval", "floor", *positions)
    return Table(header=header, rows=rows)


def tabulate_transfer(transfer: Transfer) -> Table:
    """List the matrix."""
    rows = tuple(
        (shown_name(name), *(fraction(value) for value in row))
        for name, row in zip(transfer.fitted_on, transfer.mean_ece, strict=True)
    )
    return Table(header=("fitted on ↓, judged on →", *(shown_name(name) for name in transfer.judged_on)), rows=rows)


def _judged(group: Group) -> Measures:
    return group.raw if group.calibrated is None else group.calibrated


def _matrix(values: Sequence[Sequence[float | None]], columns: list[str], names: list[str]) -> go.Figure:
    figure = blank_figure(x="", y="", height=90 + ROW_HEIGHT * len(names))
    figure.add_heatmap(
        z=[list(row) for row in values],
        x=columns,
        y=list(range(len(names))),
        text=[[fraction(value) for value in row] for row in values],
        texttemplate="%{text}",
        textfont={"color": HEAT_INK},
        colorscale=[list(stop) for stop in HEAT],
        zmin=0,
        zmax=ECE_FULL_COLOR,
        xgap=2,
        ygap=2,
        showscale=False,
        hovertemplate="%{text}<extra></extra>",
    )
    labels = [plot_text(name) for name in names]
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=labels, autorange="reversed", showgrid=False)
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_layout(margin={"t": 12})
    return figure
