"""What calibration is worth: throughput and per-user speed of the replay (the paper's Figures 7 and 8)."""

import plotly.graph_objects as go

from dspark_calib.summary.contrasts import Advice, Throughput
from dspark_calib_reports.figures.theme import CALIBRATED, ORACLE, RAW, add_estimates, blank_figure
from dspark_calib_reports.numerals import decimal, interval, percent, shown_name
from dspark_calib_reports.section import Table

METHODS = {"raw": RAW, "calibrated": CALIBRATED, "oracle": ORACLE}


def draw_throughput(runs: tuple[Throughput, ...]) -> go.Figure:
    """Draw tokens per second against concurrency for one policy."""
    figure = blank_figure(x="requests at once", y="tokens per second", height=290)
    for kind, method in METHODS.items():
        chosen = [run for run in runs if run.confidences == kind]
        if chosen:
            add_estimates(
                figure, [run.concurrency for run in chosen], [run.tokens_per_second for run in chosen], method
            )
    figure.update_layout(xaxis={"type": "log", "tickvals": sorted({run.concurrency for run in runs})})
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=False, margin={"t": 12})
    return figure


def draw_front(runs: tuple[Throughput, ...]) -> go.Figure:
    """Draw tokens per second against the speed each user sees: up and to the right is better."""
    figure = blank_figure(x="tok/s per user", y="tokens per second", height=290)
    for kind, method in METHODS.items():
        chosen = [run for run in runs if run.confidences == kind]
        if chosen:
            add_estimates(
                figure, [run.per_user.value or 0.0 for run in chosen], [run.tokens_per_second for run in chosen], method
            )
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(showlegend=False, margin={"t": 12})
    return figure


def tabulate_advice(advice: tuple[Advice, ...]) -> Table:
    """List what the replay recommends at each concurrency."""
    rows = tuple(
        (
            str(a.concurrency),
            shown_name(a.policy),
            a.temperatures,
            str(a.gamma),
            decimal(a.tokens_per_second, 0),
            percent(a.calibration_gain.value),
            interval(a.calibration_gain),
            "; ".join(a.reasons),
        )
        for a in advice
    )
    header = ("concurrency", "policy", "temperatures", "γ", "tok/s", "gain of calibration", "95 % interval", "why")
    return Table(header=header, rows=rows, title="Recommendation")


def tabulate_throughput(runs: tuple[Throughput, ...]) -> Table:
    """List every run of the replay."""
    rows = tuple(
        (
            shown_name(run.policy),
            run.confidences,
            str(run.concurrency),
            decimal(run.tokens_per_second.value, 0),
            interval(run.tokens_per_second, 0),
            decimal(run.per_user.value, 1),
            decimal(run.accepted_length.value),
            decimal(run.predicted_length),
            decimal(run.budget),
            percent(run.regret.value),
            interval(run.regret),
        )
        for run in runs
    )
    header = ("policy", "confidence", "concurrency", "tok/s", "95 % interval", "tok/s/user", "τ", "τ predicted")
    return Table(header=(*header, "budget", "regret", "95 % interval"), rows=rows)
