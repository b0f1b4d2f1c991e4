"""The parts of drift against plain loops, other libraries and closed forms."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from dspark_calib.decision.cluster_sums import LOGIT_CELLS, LOGIT_RANGE, compute_cluster_sums, logit_cells
from dspark_calib.decision.clustered_ratio import change_estimate, ratio_estimates
from dspark_calib.decision.distance import merge_to_deciles, stability_index, wasserstein
from dspark_calib.decision.drift_tests import compute_drift_tests
from dspark_calib.decision.permutation import permute_prompts
from dspark_calib.errors import InsufficientData
from dspark_calib.metrics import Estimate
from dspark_calib.trace import Labels, Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def trace_of(seed: int, *, prompts: int = 6, rounds: int = 5, gamma: int = 3) -> Trace:
    """Return a small synthetic trace in which some rounds are observed in part."""
    rng = np.random.default_rng(seed)
    made = synthetic_rounds(rng, prompts=prompts, rounds_per_prompt=rounds, temperatures=np.ones(gamma))
    observed = rng.integers(0, gamma + 1, len(made)).astype(np.int16)
    object.__setattr__(made, "observed", observed)
    object.__setattr__(made, "accepted", np.minimum(made.accepted, observed))
    return Trace.of(made, synthetic_provenance(gamma))


def test_cluster_sums_equal_a_loop_over_rounds() -> None:
    """Counts and sums per prompt and position, by the definitions of the trace."""
    trace, temperatures = trace_of(0), (0.5, 1.0, 2.0)
    sums = compute_cluster_sums(trace, temperatures)
    rounds = trace.read()
    expected = np.zeros((5, 6, 3))
    for row, prompt in enumerate(rounds.prompt_id.codes.tolist()):
        survival, accepted, observed = 1.0, int(rounds.accepted[row]), int(rounds.observed[row])
        for k in range(3):
            survival /= 1 + math.exp(-float(rounds.confidence_logits[row, k]) / temperatures[k])
            if observed > k:
                expected[:3, prompt, k] += (1, survival, accepted > k)
            if observed > k and accepted >= k:
                expected[3:, prompt, k] += (1, accepted > k)
    found = np.stack([sums.observed, sums.predicted, sums.accepted, sums.judged, sums.passed])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert sums.cells.sum(axis=2).tolist() == sums.observed.tolist()


def test_cluster_sums_do_not_depend_on_the_batches() -> None:
    """A trace in three parts gives the sums of the whole."""
    rounds = trace_of(1).read()
    parts = tuple(rounds.take(slice(start, start + 11)) for start in (0, 11, 22))
    whole = compute_cluster_sums(Trace.of(rounds, synthetic_provenance(3)), None)
    split = compute_cluster_sums(
        Trace(provenance=Trace.of(rounds, synthetic_provenance(3)).provenance, sources=parts), None
    )
    np.testing.assert_allclose(split.predicted, whole.predicted, atol=1e-12)
    np.testing.assert_array_equal(split.cells, whole.cells)


def test_one_prompt_is_too_few() -> None:
    """No interval by prompt exists for one."""
    with pytest.raises(InsufficientData, match="at least 2"):
        compute_cluster_sums(trace_of(0, prompts=1), None)


def test_rounds_without_prompt_ids_are_summed_in_blocks() -> None:
    """Blocks of 100 stand in, and the sums say so."""
    rounds = trace_of(0, prompts=50).read()
    object.__setattr__(rounds, "prompt_id", Labels.constant(None, len(rounds)))
    sums = compute_cluster_sums(Trace.of(rounds, synthetic_provenance(3)), None)
    assert (sums.clusters, sums.by_prompt) == (3, False)


def test_wasserstein_equals_scipy_within_a_cell() -> None:
    """The distance of the histograms is that of the logits to a fraction of the cell's width."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(1, 2, 5000), rng.normal(1.7, 2.5, 4000)
    histograms = [np.bincount(logit_cells(z), minlength=LOGIT_CELLS).astype(float) for z in (first, second)]
    width = 2 * LOGIT_RANGE / LOGIT_CELLS
    assert float(wasserstein(*histograms)) == pytest.approx(wasserstein_distance(first, second), abs=width / 10)


def test_stability_index_by_hand_and_finite_with_empty_bins() -> None:
    """Σ (p - q) ln(p/q) with half a round in every bin; an empty bin gives a large number and no infinity."""
    p, q = np.array([0.75, 0.25]), np.array([0.25, 0.75])
    expected = float(((p - q) * np.log(p / q)).sum())
    assert float(stability_index(np.array([74.5, 24.5]), np.array([24.5, 74.5]))) == pytest.approx(expected)
    assert 5 < float(stability_index(np.array([1000.0, 0.0]), np.array([0.0, 1000.0]))) < 20


def test_deciles_are_those_of_both_sides() -> None:
    """Each of the ten bins holds about a tenth of the pooled rounds."""
    cells = np.random.default_rng(0).multinomial(10_000, np.ones(100) / 100, size=1).astype(float)
    assert merge_to_deciles(cells)[0] == pytest.approx([1000] * 10, abs=150)
    lumped = np.zeros((1, 100))
    lumped[0, 7] = 50
    assert merge_to_deciles(lumped).tolist() == [[50.0]]


def test_ratio_of_single_rounds_has_the_error_of_a_mean() -> None:
    """With one round a prompt, Σnum/Σden is a mean with standard error s/√n."""
    values = np.random.default_rng(0).random((200, 1))
    estimate = ratio_estimates(values, np.ones((200, 1)))[0]
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.se == pytest.approx(values.std(ddof=1) / math.sqrt(200))
    assert ratio_estimates(values, np.zeros((200, 1)))[0] == Estimate(value=None)


def test_changes_add_errors_in_squares() -> None:
    """.3 ± .03 after .1 ± .04 is .2 ± .05; undefined stays undefined."""
    change = change_estimate(Estimate(value=0.1, se=0.04), Estimate(value=0.3, se=0.03))
    assert (change.value, change.se) == (pytest.approx(0.2), pytest.approx(0.05))
    assert change_estimate(Estimate(value=None), Estimate(value=0.3)) == Estimate(value=None)


def test_permutation_p_value_is_near_that_of_all_splits() -> None:
    """999 random splits of 4 + 4 prompts against the enumeration of all 70."""
    values = np.array([0.1, 0.4, 0.35, 0.2, 0.9, 0.5, 0.8, 0.3])

    def difference(sides: np.ndarray) -> np.ndarray:
        return np.abs(sides @ values - (1 - sides) @ values)[:, None]

    permuted = permute_prompts(difference, 4, 4, np.random.default_rng(0))
    splits = [np.isin(np.arange(8), chosen).astype(float) for chosen in itertools.combinations(range(8), 4)]
    exact = np.mean(difference(np.stack(splits))[:, 0] >= permuted.true[0] - 1e-12)
    assert permuted.p_value(lambda d: d[:, 0]) == pytest.approx(exact, abs=0.04)


def test_other_rounds_per_prompt_are_no_drift() -> None:
    """40 pairs from one law, 60 rounds a prompt against 15: at most 4 alarms (2.5 % promised; unscaled it is 40 %)."""
    alarms = 0
    for seed in range(40):
        old, new = (
            compute_cluster_sums(
                Trace.of(
                    synthetic_rounds(
                        np.random.default_rng([seed, side]),
                        prompts=50,
                        rounds_per_prompt=rounds,
                        temperatures=[1.0] * 2,
                        first_prompt=1000 * side,
                    ),
                    synthetic_provenance(2),
                ),
                None,
            )
            for side, rounds in enumerate((60, 15))
        )
        tests, _ = compute_drift_tests(old, new, np.random.default_rng(seed))
        alarms += any(test.moved for test in tests)
    assert alarms <= 4
