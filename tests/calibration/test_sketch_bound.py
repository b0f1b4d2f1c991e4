"""The sketch's bound under attack: rows on every edge there is, saturated logits, vanishing survival, one-sided labels.

The claim: at every temperature the exact ECE lies within the error of the estimate, for the sketch and the coarser
one. The exact ECE is that of `compute_ece`, row by row. Then the search that trusts the bound, on objectives that are
flat, jagged or have two minima, against the exhaustive one.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dspark_calib.calibration import FitRows
from dspark_calib.calibration.fitting import sketch as sketch_module
from dspark_calib.calibration.fitting.search import search
from dspark_calib.calibration.fitting.selection import choose
from dspark_calib.calibration.fitting.sketch import Bounds, build_sketch
from dspark_calib.calibration.fitting.zoom import Zoom
from dspark_calib.calibration.rows.row_blocks import PositionBlock
from dspark_calib.metrics import compute_ece
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.passes import run_pass
from dspark_calib.survival import sigmoid
from dspark_calib.trace import Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

Floats = npt.NDArray[np.float64]

COLUMNS, ROWS = 64, 64
TEMPERATURES = (0.125, 0.2, 0.5, 0.9, 1.0, 1.1, 1.7, 3.0, 8.0)
BINS = (2, 3, 7, 15, 20, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedRows:
    """Rows of one position with any prefix survival: what `build_sketch` asks of `FitRows`."""

    logit: Floats
    prior: Floats
    label: Floats
    view: str = "cumulative"
    position: int = 1
    threads: int = 1
    kept: bool = True

    def over_position(self, pass_: Any) -> Any:
        """Run a pass over all rows in two blocks."""
        return run_pass(pass_, self.blocks(), self.threads)

    def blocks(self) -> Iterator[PositionBlock]:
        """Yield all rows in two blocks."""
        half = (len(self.logit) + 1) // 2
        for rows in (slice(0, half), slice(half, None)):
            z = self.logit[rows]
            local, present = np.zeros(len(z), dtype=np.int64), np.zeros(1, dtype=np.int64)
            yield PositionBlock(
                logit=z, prior=self.prior[rows], label=self.label[rows],
                local=local, present=present,
            )  # fmt: skip


@pytest.fixture
def coarse_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few cells, so that edges cross many."""
    shrink(monkeypatch)


def shrink(monkeypatch: pytest.MonkeyPatch, columns: int = COLUMNS, rows: int = ROWS) -> None:
    """Make sketches of few cells."""
    monkeypatch.setattr(sketch_module, "COLUMNS", columns)
    monkeypatch.setattr(sketch_module, "COLUMNS_ALONE", columns)
    monkeypatch.setattr(sketch_module, "ROWS", rows)


def check_bounds(rows: Any, temperatures: Any, bins: int) -> None:
    """The exact ECE lies within the bounds of either sketch, and of zooms into narrow and wide ranges."""
    at = np.array(temperatures)
    exact = np.array([compute_ece(rows.prior * sigmoid(rows.logit / t), rows.label, bins=bins) for t in at])
    sketch = build_sketch(rows)
    for some in (sketch, sketch.coarser()):
        assert some.n == len(rows.logit)
        check_within(some.bounds(at, bins), exact)
    ranges = [(t, t) for t in at[:2]] + [(t / 1.08, t * 1.08) for t in at[:2]] + [(at.min(), at.max())]
    for lowest, highest in ranges:
        for kept in (True, False):
            zoom = Zoom.of(replace(rows, kept=kept), sketch, float(lowest), float(highest), bins)
            covered = zoom.covers(at)
            check_within(zoom.bounds(at[covered]), exact[covered])


def check_within(bounds: Bounds, exact: Floats) -> None:
    """The exact values lie within the bounds."""
    assert (bounds.low <= exact).all()
    assert (exact <= bounds.high).all()


def nudged(value: float, ulps: int) -> float:
    """The number so many representable ones further on."""
    for _ in range(abs(ulps)):
        value = float(np.nextafter(value, np.inf if ulps > 0 else -np.inf))
    return value


ulps = st.integers(-2, 2)
vanishing = st.sampled_from([0.0, 5e-324, 1e-310, 1e-300, 1e-17, 1e-9, 1e-8, 2e-8])
on_a_row = st.builds(lambda i, u: min(max(nudged(i / ROWS, u), 0.0), 1.0), st.integers(0, ROWS), ulps)
on_a_fine_row = st.integers(0, 4096).map(lambda i: i / 4096)
priors = st.one_of(st.floats(0.0, 1.0), on_a_row, on_a_fine_row, st.just(1.0), vanishing)
on_a_column = st.builds(
    lambda i, u: nudged(float(sketch_module._column_edges(COLUMNS)[i]), u), st.integers(1, COLUMNS - 1), ulps
)
far_out = st.sampled_from([1e4, -1e4, 3e38, -3e38, 0.0, -0.0, 1e-300, -1e-300, 18.5, -18.5, 150.0, -150.0])
logits = st.one_of(st.floats(-12.0, 12.0), on_a_column, far_out)
LABELS = {
    "rejected": np.zeros,
    "accepted": np.ones,
    "alternate": lambda n: np.arange(n) % 2.0,
    "first half": lambda n: (np.arange(n) < n / 2) * 1.0,
}


@st.composite
def placed_points(draw: st.DrawFn) -> Any:
    """Rows piled on points (a, z), some with a·σ(z/T) on the edge of a bin up to an ulp or two; T and bins."""
    bins, temperature = draw(st.sampled_from(BINS)), draw(st.sampled_from(TEMPERATURES))
    alone, pile = draw(st.booleans()), draw(st.integers(1, 9))
    points = []
    for _ in range(draw(st.integers(1, 8))):
        a, z = 1.0 if alone else draw(priors), draw(logits)
        edge = draw(st.integers(1, bins - 1)) / bins
        if a > edge and draw(st.booleans()):
            z = nudged(temperature * np.log(edge / (a - edge)), draw(ulps))
        points.append((a, z))
    prior, logit = (np.repeat(column, pile) for column in zip(*points, strict=True))
    labels = LABELS[draw(st.sampled_from(sorted(LABELS)))](len(logit))
    view = "conditional" if alone else "cumulative"
    return PlacedRows(logit=logit, prior=prior, label=labels, view=view), temperature, bins


@settings(max_examples=200, deadline=None)
@given(placed=placed_points())
def test_bounds_hold_for_rows_on_edges(placed: Any) -> None:
    """Whatever edge rows lie on, in either view, at the temperature that puts them there, beside it and elsewhere."""
    rows, temperature, bins = placed
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        check_bounds(rows, (temperature, temperature * (1 + 1e-13), temperature * (1 - 1e-9), *TEMPERATURES), bins)


@pytest.mark.parametrize("bins", BINS)
@pytest.mark.parametrize("labels", sorted(LABELS))
def test_bounds_hold_where_every_row_lies_on_a_bin_edge(bins: int, labels: str, coarse_cells: None) -> None:
    """Thousands of rows with a·σ(z/T) = j/B up to an ulp: every cell that holds rows is crossed."""
    rng = np.random.default_rng(bins)
    a, edge = rng.random(3000), rng.integers(1, bins, 3000) / bins
    a, edge = a[a > edge], edge[a > edge]
    for temperature in TEMPERATURES:
        z = np.nextafter(temperature * np.log(edge / (a - edge)), rng.choice([-np.inf, np.inf], len(a)))
        rows = PlacedRows(logit=z, prior=a, label=LABELS[labels](len(a)))
        check_bounds(rows, (temperature, *TEMPERATURES), bins)


@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("label", [0.0, 1.0])
@pytest.mark.parametrize("anchors", [(0.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_bounds_hold_where_every_move_counts_twice(
    side: int, label: float, anchors: Any, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows of an edge lie on one side, with one label and in cells counted on the other.

    Rows well inside either bin make their sums differ in sign.
    """
    shrink(monkeypatch, 256, 16)
    rng = np.random.default_rng(0)
    # p is just above ½ in the upper half of a cell, which is counted below, or the reverse.
    a = (rng.integers(8, 16, 500) + (0.9 if side > 0 else 0.1) + rng.uniform(-0.05, 0.05, 500)) / 16
    edge = temperature * np.log(0.5 / (a - 0.5)) + side * 1e-9
    inside = temperature * np.log(np.array([0.25, 0.75]) / np.array([0.75, 0.25]))
    rows = PlacedRows(
        logit=np.concatenate([edge, np.repeat(inside, 900)]),
        prior=np.concatenate([a, np.ones(1800)]),
        label=np.concatenate([np.full(500, label), np.repeat(anchors, 900)]),
    )
    check_bounds(rows, (temperature,), 2)


@pytest.mark.parametrize(("columns", "rows"), [(16, 8), (16, 16), (32, 512), (256, 8), (2048, 64)])
def test_bounds_hold_for_cells_of_any_shape(columns: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few columns, few rows, or a single row once merged, which says nothing about a."""
    shrink(monkeypatch, columns, rows)
    rng = np.random.default_rng(columns + rows)
    z, a = rng.normal(0, 4, 4000), rng.random(4000) ** 0.5
    label = (rng.random(4000) < a * sigmoid(z / 1.3)) * 1.0
    check_bounds(PlacedRows(logit=z, prior=a, label=label), TEMPERATURES, 20)


@settings(max_examples=50, deadline=None)
@given(middle=st.floats(0, 400), half=st.floats(1e-6, 400))
@example(middle=1.0, half=1.0)
def test_the_tangent_errs_by_no_more_than_the_rise(middle: float, half: float) -> None:
    """On one side of 0, σ differs from its tangent in the middle of a column by at most its rise over the column."""
    middle = max(middle, half)  # 0 is an edge: no column straddles it
    edges = np.array([-np.inf, middle - half, middle + half, np.inf])
    for ends in (edges, -edges[::-1]):
        column = sketch_module.Columns.at(ends, 1.0)
        x = np.linspace(ends[1], ends[2], 401)
        tangent = column.sigma[1] + column.slope[1] * (x - column.middle[1])
        assert np.abs(sigmoid(x) - tangent).max() <= column.error[1] + 1e-15


@settings(max_examples=150, deadline=None)
@given(
    sums=st.lists(st.floats(-5, 5), min_size=2, max_size=4),
    crossed=st.lists(st.one_of(st.just(0.0), st.floats(0, 2)), min_size=3, max_size=3),
    slack=st.floats(0, 1),
)
def test_moves_change_the_total_by_no_more_than_the_jumps(sums: Any, crossed: Any, slack: float) -> None:
    """Every way to move rows over the edges, with the slack in any bin: Σ|bin sum| changes by no more than allowed."""
    before, most = np.array(sums), np.array(crossed[: len(sums) - 1])
    allowed = (sketch_module._jumps(before, most, slack) * most).sum() + slack
    for flow in itertools.product((-1, -0.5, 0, 0.5, 1), repeat=len(most)):
        moved = np.append(0, flow * most) - np.append(flow * most, 0)
        for drift in (*(slack * np.eye(len(sums))), *(-slack * np.eye(len(sums)))):
            change = np.abs(before + moved + drift).sum() - np.abs(before).sum()
            assert abs(change) <= allowed + 1e-12


def test_merging_keeps_two_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight rows are not merged into one, which would stand for a = 1: a = .3 and a = .9 lie in different bins."""
    shrink(monkeypatch, 256, 8)
    rows = PlacedRows(logit=np.full(2, 3.0), prior=np.array([0.3, 0.9]), label=np.array([1.0, 0.0]))
    check_bounds(rows, TEMPERATURES, 2)


def rounds_with(logit: Floats, accepted: Floats, prompts: int, second: Floats | None = None) -> Any:
    """Rounds of one position, or of two, spread over so many prompts."""
    columns = [logit] if second is None else [logit, second]
    drawn = synthetic_rounds(
        np.random.default_rng(0), prompts=prompts, rounds_per_prompt=len(logit) // prompts,
        temperatures=[1.0] * len(columns),
    )  # fmt: skip
    return replace(
        drawn, confidence_logits=np.stack(columns, axis=1).astype(np.float32), accepted=accepted.astype(np.int16)
    )


def check_search(rounds: Any, view: Any, select: Any, target: float, bins: int = 20) -> list[Any]:
    """The pruned search finds the minimum and the choice of the exhaustive one at every position; return both."""
    rows, found = FitRows(JudgedTrace(Trace.of(rounds, synthetic_provenance(rounds.gamma))), view), []
    for _ in range(rounds.gamma):
        both = [search(rows, "ece", select, bins, target=target, exhaustive=way) for way in (False, True)]
        assert both[0].best == both[1].best
        chosen = [choose(one.candidates, rows.hashes, select, 0, target).temperature for one in both]
        assert chosen[0] == chosen[1]
        found.append((both[0].best, chosen[0]))
        rows.fix(both[0].best)
    return found


@pytest.mark.parametrize("prompts", [20, 250])
@pytest.mark.parametrize("select", ["paper", "parsimonious"])
@pytest.mark.parametrize("target", [1.0, 1.6])
def test_flat_objectives_are_searched_as_exhaustively(
    prompts: int, select: Any, target: float, coarse_cells: None
) -> None:
    """All logits 0: every temperature is as good, and T = 1 is the best by preference."""
    n = 2000
    accepted = np.arange(n) % 2.0
    assert check_search(rounds_with(np.zeros(n), accepted, prompts), "cumulative", select, target)[0][0] == 1.0
    far = np.where(np.arange(n) % 4 < 2, 1e4, -1e4)
    assert check_search(rounds_with(far, accepted, prompts), "cumulative", select, target)[0][0] == 1.0


@pytest.mark.parametrize("prompts", [20, 250])
@pytest.mark.parametrize("select", ["paper", "parsimonious"])
def test_ties_along_a_plateau_are_searched_as_exhaustively(prompts: int, select: Any, coarse_cells: None) -> None:
    """z = 10, always accepted: σ(z/T) is clamped for every T ≤ .5, where all objectives are equal to the last bit."""
    n = 2000
    best, _ = check_search(rounds_with(np.full(n, 10.0), np.ones(n), prompts), "conditional", select, 1.0)[0]
    assert 0.5 < best < 0.6  # the largest T that is still clamped: 10/T ≥ log(10⁸ - 1)
    assert 1 / (1 + np.exp(-10 / best)) >= 1 - 1e-8


@pytest.mark.parametrize("prompts", [20, 250])
@pytest.mark.parametrize("select", ["paper", "parsimonious"])
@pytest.mark.parametrize("target", [1.0, 3.0])
def test_two_minima_are_searched_as_exhaustively(prompts: int, select: Any, target: float, coarse_cells: None) -> None:
    """A sum over one bin that rises and falls with T equals the labels' near T = ½ and again near T = 4."""
    n = 12_000
    upper, lower = 2.0, -0.5  # σ(2/T) falls with T where σ(-½/T) rises

    def mean(share: float, temperature: float) -> Any:
        return share * sigmoid(upper / temperature) + (1 - share) * sigmoid(lower / temperature)

    shares = np.linspace(0, 1, 100_001)
    share = float(shares[np.argmin(np.abs(mean(shares, 0.5) - mean(shares, 4.0)))])
    logit = np.where(np.arange(n) * 7919 % n < share * n, upper, lower)
    survived = float(sigmoid(-3.0))  # a_1 ≤ .05: one bin holds every row of position 2
    wanted = survived * float(mean(share, 0.5)) * n
    accepted = np.zeros(n)
    accepted[np.arange(n) * 5407 % n < survived * n] = 1
    accepted[np.arange(n) * 5407 % n < round(wanted)] = 2
    rounds = rounds_with(np.full(n, -3.0), accepted, prompts, second=logit)
    check_search(rounds, "cumulative", select, target)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    distinct=st.integers(1, 12),
    prompts=st.sampled_from([5, 40, 250]),
    view=st.sampled_from(["cumulative", "conditional"]),
    select=st.sampled_from(["paper", "parsimonious"]),
    target=st.sampled_from([0.7, 1.0, 2.0]),
    bins=st.sampled_from(BINS),
)
def test_jagged_objectives_are_searched_as_exhaustively(
    seed: int, distinct: int, prompts: int, view: Any, select: Any, target: float, bins: int
) -> None:
    """A few distinct logits shared by all rows: the objective jumps whenever one of them changes its bin."""
    rng = np.random.default_rng(seed)
    values = rng.normal(1.0, 2.5, distinct)
    first, second = rng.choice(values, 2000), rng.choice(values, 2000)
    accepted = (rng.random(2000) < sigmoid(first / 1.4)) * (1 + (rng.random(2000) < sigmoid(second / 0.8)))
    rounds = rounds_with(first, accepted, prompts, second=second)
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        check_search(rounds, view, select, target, bins)
