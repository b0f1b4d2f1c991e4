"""Inputs on which public tools were wrong, with the right answers; the ids name the tool and the issue.

Those about the ECE of a handful of rows stand in `test_ece`, those about fits in `calibration`.
"""

import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_calib.calibration import evaluate
from dspark_calib.metrics import (
    compute_auroc,
    compute_brier,
    compute_corp,
    compute_ece,
    compute_log_loss,
    compute_reliability,
    compute_smooth_ece,
)
from dspark_calib.metrics.bootstrap import bootstrap_weights, cluster_hashes, weighted_sums
from dspark_calib.metrics.estimate import basic_estimate, percentile_estimate
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.sums.view_passes import sum_view
from dspark_calib.metrics.sums.view_sums import ViewSums
from dspark_calib.summary.scores import measures_of
from dspark_calib.survival import confidence, log_survival, prefix_survival
from dspark_calib.trace import Rounds, Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def rounds_with(logits: Any, accepted: Any) -> Rounds:
    """Rounds of forty prompts in turn, γ from the logits."""
    z = np.asarray(logits, dtype=np.float32)
    rounds = synthetic_rounds(
        np.random.default_rng(0), prompts=40, rounds_per_prompt=math.ceil(len(z) / 40), temperatures=[1.0] * z.shape[1]
    ).take(slice(0, len(z)))
    return replace(rounds, confidence_logits=z, accepted=np.asarray(accepted, dtype=np.int16))


def scores_of(rounds: Rounds, **options: Any) -> Any:
    """Raw scores of all rounds."""
    return evaluate(Trace.of(rounds, synthetic_provenance(rounds.gamma)), draws=60, **options).groups[0].raw


# Each value and the bin it belongs in; digitize puts the float64 ones marked in the facts one bin lower.
EDGES = {
    (np.float64, 20): {0.15: 3, 0.30: 6, 0.35: 7, 0.45: 9, 0.60: 12, 0.65: 13, 0.70: 14, 0.85: 17, 0.90: 18, 0.95: 19},
    (np.float32, 20): {0.15: 3, 0.30: 6, 0.35: 6, 0.45: 8, 0.60: 12, 0.65: 12, 0.70: 13, 0.85: 17, 0.90: 17, 0.95: 18},
    (np.float64, 10): {0.3: 3, 0.6: 6, 0.7: 7, 0.9: 9},
    (np.float32, 10): {0.3: 3, 0.6: 6, 0.7: 6, 0.9: 8},
    (np.float64, 15): {0.2: 3, 0.4: 6, 0.6: 9, 0.8: 12},
    (np.float32, 15): {0.2: 3, 0.4: 6, 0.6: 9, 0.8: 12},
}


@pytest.mark.parametrize(
    ("dtype", "bins", "value", "expected"),
    [
        pytest.param(dtype, bins, value, index, id=f"numpy digitize, {dtype.__name__} {value} of {bins} bins")
        for (dtype, bins), cases in EDGES.items()
        for value, index in cases.items()
    ],
)
def test_values_at_an_edge_fall_in_the_bin_of_their_float64_product(
    dtype: type, bins: int, value: float, expected: int
) -> None:
    """⌊p·B⌋ of the number as it came: a float32 below its decimal belongs one bin lower."""
    counts = compute_reliability(np.array([value], dtype=dtype), [1], bins=bins).n
    assert np.flatnonzero(counts).tolist() == [expected]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bins", [2, 3])
def test_values_on_edges_keep_their_bin_in_float32(dtype: type, bins: int) -> None:
    """torchmetrics 1907: .25, .25, .55, .75, .75 give .29 for 2 and for 3 bins in either precision."""
    p = np.array([0.25, 0.25, 0.55, 0.75, 0.75], dtype=dtype)
    assert compute_ece(p, [0, 0, 1, 1, 1], bins=bins) == pytest.approx(0.29, abs=1e-7)


@pytest.mark.parametrize(
    ("predicted", "observed", "bins", "expected"),
    [
        pytest.param([0.1] * 9 + [0.9], [0] * 9 + [0], 2, 0.18, id="bins weighted by size, machine-learning 20"),
        pytest.param([0.01, 0.02, 0.03], [1, 0, 0], 15, (1 - 0.06) / 3, id="fewer rows than bins, torch-uncertainty"),
        pytest.param([0.0, 1.0], [1, 0], 20, 1.0, id="both ends wrong, calibration-framework 52"),
        pytest.param([0.3], [1], 20, 0.7, id="one row"),
    ],
)
def test_ece_of_more_known_inputs(predicted: Any, observed: Any, bins: int, expected: float) -> None:
    """Worked by hand."""
    assert compute_ece(predicted, observed, bins=bins) == pytest.approx(expected, abs=1e-7)


def test_the_last_of_a_hundred_bins_is_counted() -> None:
    """natural-adv-examples 16: with 830 rows and 100 bins a loop to B - 1 lost the last bin, 15.7 % of the rows."""
    p = np.concatenate([np.random.default_rng(0).random(700) * 0.98, np.full(130, 0.995)])
    sums = compute_reliability(p, np.ones(830), bins=100)
    assert sums.n.sum() == 830
    assert sums.n[-1] == 130


def test_equal_mass_bins_of_many_ties_say_how_many_they_are() -> None:
    """scikit-learn 12774: quantiles that coincide are merged, and the bins that are left are all filled."""
    p = np.array([0.2] * 90 + [0.5, 0.6, 0.7, 0.8, 0.9] * 2)
    sums = compute_reliability(p, np.zeros(100), bins=10, binning="equal_mass")
    assert len(sums.n) == len(sums.edges) - 1 == 2
    assert sums.n.tolist() == [90, 10]


@pytest.mark.parametrize(
    ("p", "half", "expected"), [(0.9, False, 0.1), (0.5, True, 0.0)], ids=["torchmetrics 0.0", "torchmetrics .096"]
)
def test_more_rows_in_a_bin_than_a_float32_counts(p: float, half: bool, expected: float) -> None:
    """Beyond 2²⁴ rows a float32 sum stands still: .9 all accepted came out 0, .5 half accepted .096."""
    n = 2**24 + 2**20
    y = np.ones(n, dtype=np.int8)
    if half:
        y[::2] = 0
    assert compute_ece(np.full(n, p, dtype=np.float32), y) == pytest.approx(expected, abs=1e-7)


def test_sums_of_float32_rows_are_exact() -> None:
    """torchmetrics was 28 % off on realistic float32 rows; the measure are correctly rounded sums per bin."""
    rng = np.random.default_rng(0)
    p = (1 / (1 + np.exp(-rng.normal(1.5, 2, 300_000)))).astype(np.float32)
    y = rng.random(300_000) < p
    index = np.minimum((np.clip(p.astype(np.float64), 1e-8, 1 - 1e-8) * 20).astype(int), 19)
    exact = sum(abs(math.fsum(p[index == b].tolist()) - int(y[index == b].sum())) for b in range(20)) / len(p)
    assert compute_ece(p, y) == pytest.approx(exact, rel=1e-9)


def test_merged_counts_go_on_beyond_what_a_float32_counts() -> None:
    """pytorch-lightning 5980: doubled 24 times, the accumulator holds 40·2²⁴ rows exactly and sums to 1e-12."""
    rounds = rounds_with(np.linspace(-3, 3, 40)[:, None], np.arange(40) % 2)
    sums, _ = sum_view(JudgedTrace(Trace.of(rounds, synthetic_provenance(1))), "cumulative", None, bins=20)
    once = float(sums.predicted.sum())
    for _ in range(24):
        sums.merge(replace_with_copies(sums))
    assert sums.counts.sum() == sums.scores.sum() == 40 * 2**24
    assert sums.predicted.sum() == pytest.approx(once * 2**24, rel=1e-12)


def replace_with_copies(sums: ViewSums) -> ViewSums:
    """The same sums in memory of their own."""
    return ViewSums(**{name: getattr(sums, name).copy() for name in ViewSums.__slots__})


def test_memory_of_the_sums_does_not_grow_with_the_rows() -> None:
    """torchmetrics 1461: a hundred times the rows of the same prompts take the same memory."""
    few = rounds_with(np.linspace(-3, 3, 40)[:, None], np.arange(40) % 2)
    many = few.take(np.tile(np.arange(40), 100))
    sizes = []
    for rounds in (few, many):
        sums, _ = sum_view(JudgedTrace(Trace.of(rounds, synthetic_provenance(1))), "cumulative", None, bins=20)
        assert sums.counts.sum() == len(rounds)
        sizes.append(sum(getattr(sums, name).nbytes for name in ViewSums.__slots__))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([0.0, 1.0, 0.0, 1.0], id="torchmetrics 1989, logits 0 and 1"),
        pytest.param([0.2, 0.9, 1.2], id="torchmetrics 1744, one value above 1"),
    ],
)
def test_logits_in_the_unit_interval_stay_logits(values: list[float]) -> None:
    """Nothing is guessed from the values: what a trace holds is logits, whatever range they lie in."""
    z = np.array(values)[:, None]
    first = scores_of(rounds_with(z, np.zeros(len(z)))).cumulative[0]
    assert first.predicted_mean == pytest.approx(float((1 / (1 + np.exp(-z.astype(np.float32)))).mean()), abs=1e-7)


FROM_ARRAYS: dict[str, Callable[[Any, Any], object]] = {
    "ece": compute_ece,
    "brier": compute_brier,
    "corp": compute_corp,
    "smooth ece": compute_smooth_ece,
}


@pytest.mark.parametrize("name", FROM_ARRAYS)
@pytest.mark.parametrize(
    ("predicted", "observed"),
    [
        pytest.param([0.2, math.nan, 0.8], [0, 1, 1], id="netcal drops the NaN"),
        pytest.param([0.2, math.inf], [0, 1], id="infinity"),
        pytest.param([1.0000001, 0.2], [0, 1], id="torchmetrics takes the batch for logits"),
        pytest.param([-0.1, 0.2], [0, 1], id="below 0"),
        pytest.param([0.2, 0.8], [0.0, 7.0], id="elk 194, labels and probabilities swapped"),
        pytest.param([], [], id="pycalib, relplot: nothing scores 0"),
        pytest.param([0.2, 0.3], [1], id="NN_calibration 17, labels of other rows"),
    ],
)
def test_every_measure_refuses_what_is_no_probability(name: str, predicted: Any, observed: Any) -> None:
    """NaN, infinity, values outside [0, 1], no rows and arrays of other lengths are errors, never a number."""
    with pytest.raises(ValueError, match=r"predicted|observed|no rows"):
        FROM_ARRAYS[name](predicted, observed)


@pytest.mark.parametrize("compute", [compute_auroc, compute_log_loss])
@pytest.mark.parametrize(
    ("scores", "labels", "named"),
    [
        pytest.param([-1.0, -0.1], [0.2, 0.9], "labels", id="elk 194, probabilities in the place of labels"),
        pytest.param([-1.0, -0.1], [0, math.nan], "labels", id="a label that is NaN"),
        pytest.param([-1.0, math.nan], [0, 1], "scores|log_survival", id="a score that is NaN"),
        pytest.param([-1.0, -0.1], [1], "labels", id="labels of other rows"),
    ],
)
def test_scores_and_labels_are_not_taken_for_one_another(compute: Any, scores: Any, labels: Any, named: str) -> None:
    """Labels are 0 or 1; anything else is named."""
    with pytest.raises(ValueError, match=named):
        compute(scores, labels)


def test_the_logarithm_of_a_probability_is_not_above_0() -> None:
    """A logit in the place of log a is refused."""
    with pytest.raises(ValueError, match=r"log_survival\[1\] = 2.0"):
        compute_log_loss([-1.0, 2.0], [0, 1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_small_floats_give_what_their_float64_values_give(dtype: type) -> None:
    """cmu-thesis 7, sentence-transformers 3893: float16 sums stop at 2048, its σ ties at z ≥ 7.625."""
    rng = np.random.default_rng(0)
    z = rng.normal(6, 3, (5000, 2)).astype(dtype)
    exact = z.astype(np.float64)
    y = rng.random(5000) < 1 / (1 + np.exp(-exact[:, 0] + 3))
    for function in (confidence, prefix_survival, log_survival):
        np.testing.assert_array_equal(function(z), function(exact))
    assert len(np.unique(log_survival(z[:, :1]))) == len(np.unique(exact[:, 0]))
    assert compute_auroc(z[:, 0], y).value == compute_auroc(exact[:, 0], y).value
    p = confidence(exact)[:, 0].astype(dtype)
    for measure in FROM_ARRAYS.values():
        assert measure(p, y) == measure(p.astype(np.float64), y)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_results_do_not_depend_on_the_precision_of_logits(dtype: type) -> None:
    """scikit-learn 28245: float32 logits are widened at the boundary and agree with float64 to 1e-6."""
    z = np.random.default_rng(1).normal(0, 3, 4000)
    y = np.arange(4000) % 3 == 0
    given_logits = z.astype(dtype)
    assert compute_log_loss(log_survival(given_logits[:, None])[:, 0], y) == pytest.approx(
        compute_log_loss(log_survival(z[:, None])[:, 0], y), rel=1e-6
    )
    assert compute_brier(confidence(given_logits), y) == pytest.approx(compute_brier(confidence(z), y), rel=1e-6)


def test_brier_and_its_parts_hold_what_varies_within_a_bin() -> None:
    """calibstats lost the .0016 within a bin: (.09² + .01²)/2 = .0041, all of it miscalibration."""
    assert compute_brier([0.91, 0.99], [1, 1]) == pytest.approx(0.0041)
    parts = compute_corp([0.91, 0.99], [1, 1])
    assert parts.miscalibration == pytest.approx(0.0041)
    assert (parts.discrimination, parts.uncertainty) == pytest.approx((0, 0))


@pytest.mark.parametrize("order", [[0, 1, 0, 1], [0, 0, 1, 1], [1, 1, 0, 0]])
def test_ties_are_pooled_whatever_the_order_of_rows(order: list[int]) -> None:
    """calikit's isotonic fit gave one p two rates: at .5 with half the labels 1 nothing is miscalibrated."""
    assert compute_corp([0.5] * 4, order).miscalibration == pytest.approx(0, abs=1e-12)


def test_certain_and_wrong_costs_a_finite_loss() -> None:
    """model-diagnostics gives an infinite loss for p = 0 and label 1; from logits it is the logit itself."""
    first = scores_of(rounds_with(np.tile([[-3e4], [3e4]], (40, 1)), np.tile([1, 0], 40))).cumulative[0]
    assert first.log_loss.value == pytest.approx(-math.log(np.finfo(np.float64).tiny) / 2 + 3e4 / 2, rel=1e-9)
    assert first.brier.value == pytest.approx(1.0, abs=1e-7)


def test_what_is_undefined_stays_out_of_the_mean() -> None:
    """scikit-learn 30079: a position without rows is no 0 in the mean, and has a reason."""
    rounds = rounds_with(np.random.default_rng(2).normal(1, 1, (400, 3)), np.arange(400) % 2)
    scores = scores_of(replace(rounds, observed=np.full(400, 2, np.int16), verified=np.full(400, 3, np.int16)))
    defined = [p.ece.value for p in scores.cumulative if p.ece.value is not None]
    assert len(defined) == 2
    assert scores.mean_ece.value == pytest.approx(np.mean(defined))
    assert [p.missing is None or p.missing == "single class" for p in scores.cumulative] == [True, True, False]


def test_fifty_rounds_come_with_counts_bands_and_a_warning() -> None:
    """scikit-learn 30664: n = 50 shows the rows and interval of every bin, and says that they are rough."""
    rounds = synthetic_rounds(np.random.default_rng(3), prompts=10, rounds_per_prompt=5, temperatures=[1.0])
    found = evaluate(Trace.of(rounds, synthetic_provenance(1)), bins=10, draws=60)
    shown = measures_of(found.groups[0].raw).positions[0].bins
    assert sum(b.n for b in shown) == 50
    assert all((b.predicted is None) == (b.observed.value is None) == (b.n == 0) for b in shown)
    assert any(b.observed.low is not None for b in shown)
    assert any("fewer than 30 prompts in all (10)" in said for said in found.warnings)


def test_predictions_of_0_and_1_leave_the_bins_between_empty() -> None:
    """calibration-framework 52: no value where no row fell."""
    shown = measures_of(scores_of(rounds_with(np.tile([[-60.0], [60.0]], (40, 1)), np.tile([0, 1], 40))))
    filled = [b for b in shown.positions[0].bins if b.n]
    assert [(b.low, b.high) for b in filled] == [(0.0, 0.05), (0.95, 1.0)]
    empty = [b for b in shown.positions[0].bins if not b.n]
    assert all(b.predicted is None and b.observed.value is None and b.observed.low is None for b in empty)


def test_a_cluster_drawn_twice_counts_twice() -> None:
    """duckreg 20: a weight of 2 is the cluster's rows twice; sums equal those of copied rows."""
    values, hashes = np.random.default_rng(4).random((6, 3)), cluster_hashes([("s", str(i)) for i in range(6)])
    weights = bootstrap_weights(hashes, range(100), seed=1).astype(int)
    copied = [np.repeat(values, drawn, axis=0).sum(axis=0) for drawn in weights]
    assert weights.max() >= 2
    np.testing.assert_allclose(weighted_sums([values], hashes, 100, seed=1)[0], copied, atol=1e-12)


def test_two_thousand_draws_need_no_matrix_of_draws_and_rows() -> None:
    """calibstats would hold 16 GB: replicates come from the sums of clusters, some draws at a time."""
    values, hashes = np.ones((5000, 21)), cluster_hashes([("s", str(i)) for i in range(5000)])
    tracemalloc.start()
    weighted_sums([values], hashes, 2000, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 5000 * 8 * 20  # of 2000 · 5000 · 8, a quarter at most


def test_the_level_of_an_interval_is_95_per_cent() -> None:
    """verified_calibration 13 wrote 10 for 10 %: of draws 0 … 1000 the interval runs from 25 to 975, or is mirrored."""
    draws = np.arange(1001.0)
    percentile, basic = percentile_estimate(400.0, draws), basic_estimate(400.0, draws)
    assert (percentile.low, percentile.high) == pytest.approx((25, 975))
    assert (basic.low, basic.high) == pytest.approx((800 - 975, 800 - 25))


@pytest.mark.parametrize("make", [percentile_estimate, basic_estimate])
def test_two_draws_give_no_interval(make: Any) -> None:
    """CMAverse 50: an interval of two replicates may miss its own estimate, so there is none."""
    found = make(0.5, np.array([0.7, 0.8]))
    assert (found.value, found.low, found.high) == (0.5, None, None)


@pytest.mark.parametrize("make", [percentile_estimate, basic_estimate])
def test_identical_draws_give_an_interval_of_no_width(make: Any) -> None:
    """unitxt 1660: constant data gave NaN."""
    found = make(0.3, np.full(100, 0.3))
    assert (found.low, found.high) == pytest.approx((0.3, 0.3))


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 30),
    st.sampled_from(["equal_width", "equal_mass"]),
)
def test_no_input_gives_an_ece_outside_the_unit_interval(rows: Any, bins: int, binning: Any) -> None:
    """uncertainty-metrics 1: 0 ≤ ECE ≤ 1, with every row in a bin, for both kinds of bins."""
    p, y = zip(*rows, strict=True)
    sums = compute_reliability(p, y, bins=bins, binning=binning)
    assert sums.n.sum() == len(rows)
    assert 0 <= (sums.ece or 0) <= 1
