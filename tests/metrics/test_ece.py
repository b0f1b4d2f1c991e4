"""ECE on hand-made inputs; each right answer is worked by hand or is a closed form."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_calib.metrics import compute_brier, compute_ece, compute_noise_floor, compute_reliability
from dspark_calib.metrics.ece import compute_squared_error_debiased

# Figure 6 of the paper: weight in %, mean predicted and observed survival before calibration, by 20 bins.
FIGURE_6 = {
    1: (
        [
            0.03,
            0.06,
            0.09,
            0.12,
            0.20,
            0.28,
            0.53,
            0.81,
            1.53,
            2.04,
            3.17,
            4.30,
            5.48,
            5.97,
            6.70,
            7.32,
            7.21,
            7.32,
            8.85,
            37.99,
        ],
        [
            0.034,
            0.076,
            0.125,
            0.173,
            0.227,
            0.277,
            0.327,
            0.377,
            0.427,
            0.476,
            0.526,
            0.576,
            0.626,
            0.676,
            0.725,
            0.775,
            0.825,
            0.875,
            0.926,
            0.990,
        ],
        [
            0.000,
            0.233,
            0.149,
            0.108,
            0.210,
            0.236,
            0.286,
            0.320,
            0.388,
            0.407,
            0.466,
            0.500,
            0.557,
            0.578,
            0.616,
            0.674,
            0.735,
            0.802,
            0.851,
            0.974,
        ],
        0.0573,
    ),
    3: (
        [
            1.46,
            3.85,
            5.51,
            6.21,
            6.38,
            6.63,
            6.39,
            6.30,
            5.92,
            5.53,
            5.14,
            4.91,
            4.60,
            4.33,
            3.80,
            3.49,
            3.27,
            3.05,
            3.27,
            9.97,
        ],
        [
            0.032,
            0.078,
            0.126,
            0.175,
            0.225,
            0.275,
            0.325,
            0.375,
            0.425,
            0.474,
            0.525,
            0.575,
            0.625,
            0.674,
            0.725,
            0.774,
            0.825,
            0.875,
            0.926,
            0.988,
        ],
        [
            0.028,
            0.062,
            0.098,
            0.140,
            0.181,
            0.208,
            0.250,
            0.288,
            0.325,
            0.345,
            0.396,
            0.457,
            0.486,
            0.547,
            0.586,
            0.622,
            0.702,
            0.771,
            0.833,
            0.969,
        ],
        0.0820,
    ),
    5: (
        [
            21.85,
            14.46,
            10.24,
            7.95,
            6.17,
            5.17,
            4.39,
            3.75,
            3.08,
            2.69,
            2.52,
            2.28,
            2.02,
            1.84,
            1.48,
            1.47,
            1.38,
            1.29,
            1.52,
            4.44,
        ],
        [
            0.024,
            0.073,
            0.124,
            0.174,
            0.224,
            0.274,
            0.324,
            0.374,
            0.425,
            0.474,
            0.525,
            0.575,
            0.625,
            0.674,
            0.725,
            0.774,
            0.825,
            0.875,
            0.926,
            0.987,
        ],
        [
            0.017,
            0.051,
            0.089,
            0.122,
            0.163,
            0.200,
            0.249,
            0.259,
            0.296,
            0.352,
            0.397,
            0.400,
            0.498,
            0.524,
            0.564,
            0.613,
            0.669,
            0.763,
            0.854,
            0.961,
        ],
        0.0580,
    ),
    7: (
        [
            52.91,
            12.71,
            7.18,
            4.55,
            3.58,
            2.59,
            2.18,
            1.73,
            1.55,
            1.32,
            1.16,
            1.10,
            0.93,
            0.86,
            0.68,
            0.73,
            0.71,
            0.64,
            0.78,
            2.10,
        ],
        [
            0.015,
            0.072,
            0.123,
            0.174,
            0.223,
            0.274,
            0.325,
            0.374,
            0.425,
            0.475,
            0.525,
            0.575,
            0.626,
            0.675,
            0.724,
            0.774,
            0.824,
            0.875,
            0.926,
            0.986,
        ],
        [
            0.011,
            0.049,
            0.083,
            0.119,
            0.166,
            0.191,
            0.228,
            0.230,
            0.311,
            0.322,
            0.383,
            0.433,
            0.490,
            0.563,
            0.543,
            0.623,
            0.703,
            0.796,
            0.833,
            0.959,
        ],
        0.0334,
    ),
}


@pytest.mark.parametrize("position", sorted(FIGURE_6))
def test_ece_of_the_papers_figure_6(position: int) -> None:
    """The printed ECE follows from the bins of Figure 6, given as weights and soft labels."""
    weight, predicted, observed, printed = FIGURE_6[position]
    assert compute_ece(predicted, observed, weights=weight) == pytest.approx(printed, abs=5e-4)


@pytest.mark.parametrize(
    ("predicted", "observed", "bins", "expected"),
    [
        pytest.param([0.95, 1.0], [1, 0], 10, 0.475, id="p=1 falls in the last bin, torchmetrics 3510"),
        pytest.param([0.95, 1.0], [1, 0], 15, 0.475, id="the same with 15 bins"),
        pytest.param([0.95, 1.0], [1, 0], 20, 0.475, id="the same with 20 bins"),
        pytest.param([1, 1, 1, 1, 0], [0, 0, 1, 1, 1], 2, 0.6, id="p=0 has a bin, torchmetrics 1646"),
        pytest.param([0.25, 0.25, 0.55, 0.75, 0.75], [0, 0, 1, 1, 1], 2, 0.29, id="torchmetrics 1907, 2 bins"),
        pytest.param([0.25, 0.25, 0.55, 0.75, 0.75], [0, 0, 1, 1, 1], 3, 0.29, id="torchmetrics 1907, 3 bins"),
        pytest.param([0.01, 0.001, 0.005], [1, 1, 1], 20, 1 - 0.016 / 3, id="rate, not accuracy, torchmetrics 1105"),
        pytest.param([0.0], [1], 20, 1.0, id="p=0 is not dropped"),
        pytest.param([0, 0, 1, 1], [0, 1, 1, 1], 20, 0.25, id="left edge is counted, calzone"),
        pytest.param([0.15, 0.15, 0.15, 0.12], [0, 0, 0, 1], 20, 0.3325, id="floor of p·B, not digitize"),
        pytest.param([0.7] * 4, [0] * 4, 15, 0.7, id="one distinct value"),
        pytest.param([0.51, 0.51, 0.51, 0.549], [1, 1, 0, 1], 20, 0.23025, id="mean of p, not the middle of the bin"),
        pytest.param([0.5 - 1e-9, 0.5 + 1e-9], [0, 1], 20, 0.5, id="discontinuous by nature"),
        pytest.param([0.5, 0.5], [0, 1], 20, 0.0, id="cancels within a bin"),
    ],
)
def test_ece_of_known_inputs(predicted: Any, observed: Any, bins: int, expected: Any) -> None:
    """Reports of other tools' faults, with the right answers."""
    assert compute_ece(predicted, observed, bins=bins) == pytest.approx(expected, abs=2e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_of_the_input_does_not_move_the_answer(dtype: type) -> None:
    """float32 and float64 input give the same ECE away from bin edges."""
    p = np.array([0.22, 0.22, 0.53, 0.77, 0.77], dtype=dtype)
    assert compute_ece(p, [0, 0, 1, 1, 1], bins=3) == pytest.approx((0.22 * 2 + 0.47 + 0.23 * 2) / 5, abs=1e-6)


def test_empty_bins_stay_with_null_means() -> None:
    """Every bin is kept: count 0 and mean None where nothing fell in."""
    sums = compute_reliability([0.9, 0.8, 0.2], [1, 1, 0], bins=3)
    assert sums.n.tolist() == [1, 0, 2]
    assert sums.predicted[1] is None
    assert sums.observed == (0.0, None, 1.0)


@pytest.mark.parametrize("order", [[0, 0, 1, 1], [0, 1, 0, 1], [1, 0, 0, 1]])
def test_equal_mass_bins_never_part_equal_values(order: Any) -> None:
    """Half the labels are 1 at one value of p: ECE 0 in any order of rows, from a single bin."""
    sums = compute_reliability([0.5] * 4, order, bins=2, binning="equal_mass")
    assert sums.ece == pytest.approx(0.0, abs=1e-12)
    assert len(sums.n) == 1


@pytest.mark.parametrize(("p", "y"), [([0.7] * 5, [0] * 5), ([0.1, 0.4, 0.9], [0, 0, 1])])
def test_equal_mass_with_more_bins_than_rows(p: Any, y: Any) -> None:
    """With a bin for each distinct value, ECE is the mean absolute difference per value."""
    expected = 0.7 if p[0] == p[1] else (0.1 + 0.4 + 0.1) / 3
    assert compute_ece(p, y, bins=15, binning="equal_mass") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("predicted", "observed", "named"),
    [
        ([0.2, np.nan, 0.8], [0, 1, 1], "predicted"),
        ([0.2, np.inf], [0, 1], "predicted"),
        ([1.0000001, 0.2], [0, 1], "predicted"),
        ([0.2, 0.9, 1.2], [0, 1, 1], "predicted"),
        ([0.2, 0.8], [0, 2], "observed"),
        ([], [], "no rows"),
        ([0.2, 0.3], [1], "alike"),
    ],
)
def test_bad_values_are_refused_by_name(predicted: Any, observed: Any, named: Any) -> None:
    """Logits are never taken for probabilities, NaN never dropped, nothing is not a perfect score."""
    with pytest.raises(ValueError, match=named):
        compute_ece(predicted, observed)


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-1.0, 2.0], [1.0], [np.nan, 1.0]])
def test_bad_weights_are_refused(weights: Any) -> None:
    """Weights that are all zero, negative, missing or NaN are errors."""
    with pytest.raises(ValueError, match="weights"):
        compute_ece([0.2, 0.8], [0, 1], weights=weights)


def test_twenty_million_rows_in_one_bin() -> None:
    """Sums beyond 2²⁴ stay exact: .9 predicted, all accepted, gives .1 (a float32 counter gives 0)."""
    n = 2**24 + 2**20
    p = np.full(n, 0.9, dtype=np.float32)
    assert compute_ece(p, np.ones(n, dtype=np.int8)) == pytest.approx(0.1, abs=1e-6)


def test_singleton_bins_contribute_their_plug_in_term() -> None:
    """A bin with one row has no variance to subtract; the rest is debiased (worked by hand)."""
    # Bin of .1: p .1, y .25 over 4 rows, variance .25·.75/3. Bin of .9: one row, (.9 - 1)².
    sums = compute_reliability([0.1, 0.1, 0.1, 0.1, 0.9], [0, 0, 0, 1, 1])
    expected = (4 * ((0.1 - 0.25) ** 2 - 0.0625) + 0.01) / 5
    assert compute_squared_error_debiased(sums) == pytest.approx(expected)


@pytest.mark.parametrize("n", [500, 5000])
def test_noise_floor_is_the_mean_ece_of_perfect_calibration(n: int) -> None:
    """The formula agrees with simulation to 5 % where bins hold enough rows."""
    rng = np.random.default_rng(n)
    found, floors = [], []
    for _ in range(200):
        p = rng.random(n)
        y = rng.random(n) < p
        found.append(compute_ece(p, y))
        floors.append(compute_noise_floor(compute_reliability(p, y)))
    assert np.mean(floors) == pytest.approx(np.mean(found), rel=0.05)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60), st.integers(1, 40))
def test_ece_lies_in_the_unit_interval_and_bins_hold_all_rows(rows: Any, bins: int) -> None:
    """0 ≤ ECE ≤ 1 and the bin counts sum to n, whatever the input."""
    p, y = zip(*rows, strict=True)
    sums = compute_reliability(p, y, bins=bins)
    assert sums.n.sum() == len(rows)
    assert 0 <= sums.ece <= 1


def deepspec_rule(p: Any, y: Any, bins: int = 20) -> Any:
    """The rule of DeepSpec's recorder in plain loops."""
    count, pred, target, brier = [0] * bins, [0.0] * bins, [0.0] * bins, 0.0
    for prob, label in zip(p, y, strict=True):
        q = min(max(prob, 1e-8), 1 - 1e-8)
        b = min(max(int(q * bins), 0), bins - 1)
        count[b], pred[b], target[b] = count[b] + 1, pred[b] + q, target[b] + label
        brier += (q - label) ** 2
    n = len(p)
    ece = sum(c * abs(s / c - t / c) for c, s, t in zip(count, pred, target, strict=True) if c) / n
    return ece, brier / n, sum(pred) / n, sum(target) / n


def test_equals_deepspecs_recorder_on_the_same_probabilities() -> None:
    """Given the same probabilities, ECE, Brier and means agree to 1e-12."""
    rng = np.random.default_rng(0)
    p = rng.beta(2, 1, 20_000)
    y = (rng.random(20_000) < p).astype(float)
    ece, brier, predicted, observed = deepspec_rule(p.tolist(), y.tolist())
    sums = compute_reliability(p, y)
    assert sums.ece == pytest.approx(ece, abs=1e-12)
    assert compute_brier(p, y) == pytest.approx(brier, abs=1e-12)
    assert sums.predicted_sum.sum() / sums.total == pytest.approx(predicted, abs=1e-12)
    assert sums.observed_sum.sum() / sums.total == pytest.approx(observed, abs=1e-12)


@pytest.mark.parametrize("probability", [0.15, 0.30, 0.35, 0.60, 0.70, 0.85, 0.95])
def test_bin_edges_follow_floor_of_p_times_b(probability: Any) -> None:
    """At these values numpy's digitize lands one bin lower; the rule here is ⌊p·B⌋ in float64."""
    sums = compute_reliability([probability], [1])
    assert int(np.flatnonzero(sums.n)[0]) == int(probability * 20)
