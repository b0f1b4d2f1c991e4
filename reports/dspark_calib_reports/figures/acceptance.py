"""What the target accepted: conditional acceptance of one or more drafters, and accepted lengths."""

import plotly.graph_objects as go

from dspark_calib.summary.details import Drafter
from dspark_calib_reports.figures.theme import OTHERS, add_estimates, blank_figure, position_axis
from dspark_calib_reports.numerals import count, decimal, interval, percent, plot_text, shown_name
from dspark_calib_reports.section import Table

PATTERNS = ("", "/", "x", ".", "-", "|", "+")


def draw_conditional_acceptance(drafters: tuple[Drafter, ...]) -> go.Figure:
    """Draw P(draft k accepted | the first k-1 were), one line a drafter (the paper's Figure 2)."""
    figure = blank_figure(x="", y="conditional acceptance", height=360)
    longest = 1
    for index, drafter in enumerate(drafters):
        rates = drafter.acceptance.conditional
        longest = max(longest, len(rates))
        positions = range(1, len(rates) + 1)
        add_estimates(figure, positions, rates, OTHERS[index % len(OTHERS)], name=plot_text(drafter.name))
    position_axis(figure, longest)
    figure.update_yaxes(tickformat=".0%")
    return figure


def draw_lengths(drafters: tuple[Drafter, ...]) -> go.Figure:
    """Draw how many drafts of a block were accepted."""
    figure = blank_figure(x="accepted drafts", y="rounds")
    for index, drafter in enumerate(drafters):
        lengths = drafter.acceptance.lengths
        figure.add_bar(
            x=list(range(len(lengths))),
            y=list(lengths),
            name=plot_text(drafter.name),
            marker={
                "color": OTHERS[index % len(OTHERS)].color,
                "pattern": {"shape": PATTERNS[index % len(PATTERNS)], "solidity": 0.35},
            },
        )
    figure.update_layout(xaxis={"tickmode": "linear", "dtick": 1})
    return figure


def tabulate_acceptance(drafters: tuple[Drafter, ...]) -> Table:
    """List conditional and prefix acceptance per drafter and position."""
    rows = tuple(
        (
            shown_name(drafter.name),
            str(k + 1),
            percent(conditional.value),
            interval(conditional),
            percent(drafter.acceptance.prefix[k].value),
            count(drafter.acceptance.judged[k]),
        )
        for drafter in drafters
        for k, conditional in enumerate(drafter.acceptance.conditional)
    )
    return Table(header=("drafter", "position", "conditional", "95 % interval", "prefix", "drafts judged"), rows=rows)


def tabulate_lengths(drafters: tuple[Drafter, ...]) -> Table:
    """List accepted length τ and the rounds with 0, 1, … γ accepted drafts."""
    longest = max(len(drafter.acceptance.lengths) for drafter in drafters)
    rows = tuple(
        (
            shown_name(drafter.name),
            decimal(drafter.acceptance.accepted_length.value),
            interval(drafter.acceptance.accepted_length, 2),
            *(count(value) for value in drafter.acceptance.lengths),
            *("–" for _ in range(longest - len(drafter.acceptance.lengths))),
        )
        for drafter in drafters
    )
    return Table(header=("drafter", "τ", "95 % interval", *(str(k) for k in range(longest))), rows=rows)
