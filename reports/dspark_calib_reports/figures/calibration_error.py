"""Calibration error by position: ECE against its floor, signed bias, the CORP parts, the whole table."""

from collections.abc import Callable

import plotly.graph_objects as go

from dspark_calib.summary.measures import Group, Measures, PositionMeasures
from dspark_calib_reports.figures.theme import CALIBRATED, RAW, add_estimates, add_level, blank_figure, position_axis
from dspark_calib_reports.numerals import count, fraction, interval, signed
from dspark_calib_reports.section import Table

SCORE_HEADER = (
    "position",
    "confidence",
    "n",
    "ECE",
    "95 % interval",
    "floor",
    "ECE² debiased",
    "smooth ECE",
    "AUROC",
    "Brier",
    "log loss",
    "predicted",
    "observed",
    "remark",
)


def draw_ece(group: Group) -> go.Figure:
    """Draw ECE by position with intervals, and the floor of a perfectly calibrated drafter."""
    figure = blank_figure(x="", y="ECE")
    positions = _positions(group.raw)
    add_level(figure, positions, [row.ece_floor for row in group.raw.positions], "noise floor")
    add_estimates(figure, positions, [row.ece for row in group.raw.positions], RAW)
    if group.calibrated is not None:
        add_estimates(figure, positions, [row.ece for row in group.calibrated.positions], CALIBRATED)
    position_axis(figure, len(positions))
    figure.update_yaxes(rangemode="tozero")
    return figure


def draw_bias(group: Group) -> go.Figure:
    """Draw predicted minus observed; above zero is overconfident."""
    figure = blank_figure(x="", y="predicted − observed")
    positions = _positions(group.raw)
    add_level(figure, [0.5, len(positions) + 0.5], [0, 0], "no bias")
    add_estimates(figure, positions, [row.bias for row in group.raw.positions], RAW)
    if group.calibrated is not None:
        add_estimates(figure, positions, [row.bias for row in group.calibrated.positions], CALIBRATED)
    position_axis(figure, len(positions))
    figure.update_yaxes(tickformat="+.2f")
    return figure


def draw_miscalibration(group: Group) -> go.Figure:
    """Draw the part of the Brier score that recalibration could remove."""
    return _bars(group, "miscalibration", lambda row: row.corp.miscalibration if row.corp else None)


def draw_discrimination(group: Group) -> go.Figure:
    """Draw the part of the Brier score that the ranking earns."""
    return _bars(group, "discrimination", lambda row: row.corp.discrimination if row.corp else None)


def tabulate_scores(group: Group) -> Table:
    """List ECE, AUROC, Brier and the rest of every position, raw beside calibrated."""
    rows = [row for measures, label in _both(group) for row in _score_rows(measures, label)]
    return Table(header=SCORE_HEADER, rows=tuple(rows))


def tabulate_bias(group: Group) -> Table:
    """List the signed bias of every position."""
    rows = [
        (str(row.position), label, signed(row.bias.value), interval(row.bias), count(row.n))
        for measures, label in _both(group)
        for row in measures.positions
    ]
    return Table(header=("position", "confidence", "bias", "95 % interval", "n"), rows=tuple(rows))


def tabulate_corp(group: Group) -> Table:
    """List the three parts of the Brier score."""
    rows = [
        (str(row.position), label, *_corp_cells(row)) for measures, label in _both(group) for row in measures.positions
    ]
    header = ("position", "confidence", "Brier", "miscalibration", "discrimination", "uncertainty")
    return Table(header=header, rows=tuple(rows))


def _bars(group: Group, y: str, pick: Callable[[PositionMeasures], float | None]) -> go.Figure:
    figure = blank_figure(x="", y=y, height=280)
    patterns = {"raw": "/", "calibrated": ""}
    for measures, label in _both(group):
        method = RAW if label == "raw" else CALIBRATED
        figure.add_bar(
            x=_positions(measures),
            y=[pick(row) for row in measures.positions],
            name=label,
            marker={"color": method.color, "pattern": {"shape": patterns[label], "solidity": 0.35}},
        )
    position_axis(figure, len(group.raw.positions))
    return figure


def _both(group: Group) -> tuple[tuple[Measures, str], ...]:
    if group.calibrated is None:
        return ((group.raw, "raw"),)
    return ((group.raw, "raw"), (group.calibrated, "calibrated"))


def _positions(measures: Measures) -> list[int]:
    return [row.position for row in measures.positions]


def _score_rows(measures: Measures, label: str) -> list[tuple[str, ...]]:
    return [
        (
            str(row.position),
            label,
            count(row.n),
            fraction(row.ece.value),
            interval(row.ece),
            fraction(row.ece_floor),
            fraction(row.ece_squared_debiased, 5),
            fraction(row.smooth_ece),
            fraction(row.auroc.value),
            fraction(row.brier.value),
            fraction(row.log_loss.value),
            fraction(row.predicted_mean),
            fraction(row.observed_mean),
            row.missing or ("at the floor" if row.ece_at_floor else ""),
        )
        for row in measures.positions
    ]


def _corp_cells(row: PositionMeasures) -> tuple[str, ...]:
    if row.corp is None:
        return (fraction(row.brier.value), fraction(None), fraction(None), fraction(None))
    parts = (row.corp.miscalibration, row.corp.discrimination, row.corp.uncertainty)
    return (fraction(row.brier.value), *(fraction(part, 4) for part in parts))
