"""AUROC against hand counts, scikit-learn and simulation."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dspark_calib.calibration import Calibration, evaluate
from dspark_calib.metrics import compute_auroc
from dspark_calib.metrics.ranking import SCORE_BINS, auroc_of_counts, score_bins
from dspark_calib.survival import log_sigmoid, log_survival
from dspark_calib.trace import Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

SATURATED = [98.095, 98.461, 98.114, 98.151, 97.604, 98.942, 98.2, 98.3, 98.4, 98.5, 98.6, 98.7, 98.8, 98.9, 99.0]


def test_large_logits_are_ranked_though_their_sigmoid_is_one() -> None:
    """torchmetrics 2819: one negative among 15, one positive below it: 13/14, from arrays and from score bins."""
    labels = np.array([0] + [1] * 14)
    assert compute_auroc(SATURATED, labels).value == pytest.approx(13 / 14)
    index = score_bins(log_sigmoid(np.array(SATURATED)))
    negatives, positives = (np.bincount(index[labels == y], minlength=SCORE_BINS) for y in (0, 1))
    assert auroc_of_counts(negatives, positives) == pytest.approx(13 / 14)


@pytest.mark.parametrize("label", [0, 1])
def test_single_class_is_undefined(label: Any) -> None:
    """One class has no AUROC: None, not 0 and not NaN."""
    assert compute_auroc([0.1, 0.2, 0.3], [label] * 3).value is None


@pytest.mark.parametrize(
    ("scores", "labels", "expected"),
    [
        ([1, 2, 3, 4], [0, 0, 1, 1], 1.0),
        ([1, 2, 3, 4], [1, 1, 0, 0], 0.0),
        ([1, 1, 1, 1], [0, 1, 0, 1], 0.5),
        ([1, 2, 2, 3], [0, 0, 1, 1], 0.875),
    ],
)
def test_auroc_counts_ties_half(scores: Any, labels: Any, expected: Any) -> None:
    """Hand counts, anti-correlated labels and ties among them."""
    assert compute_auroc(scores, labels).value == pytest.approx(expected)


def test_nan_scores_are_refused() -> None:
    """Ranks of NaN have no meaning."""
    with pytest.raises(ValueError, match="not finite"):
        compute_auroc([0.1, float("nan")], [0, 1])


@pytest.mark.parametrize("mean", [1.7, 7.0])
def test_score_bins_agree_with_scikit_learn(mean: Any) -> None:
    """65,536 bins of log-survival miss the exact AUROC by less than 2e-5, also where p crowds at 1."""
    rng = np.random.default_rng(1)
    z = rng.normal(mean, 2, 100_000)
    y = rng.random(100_000) < 1 / (1 + np.exp(-z + 0.5 * mean))
    index = score_bins(log_sigmoid(z))
    negatives, positives = (np.bincount(index[y == label], minlength=SCORE_BINS) for label in (0, 1))
    assert auroc_of_counts(negatives, positives) == pytest.approx(roc_auc_score(y, z), abs=2e-5)


def test_score_bins_increase_with_log_survival() -> None:
    """A larger log a never has a smaller bin, out to saturation at both ends."""
    s = -np.exp(np.linspace(9, -200, 5000))
    index = score_bins(s)
    assert (np.diff(index) >= 0).all()
    assert index[0] == 0
    assert index[-1] == SCORE_BINS - 1


def test_clustered_standard_error_matches_simulation() -> None:
    """With a prompt effect, the clustered DeLong error is the spread over fresh samples within 15 %."""
    rng = np.random.default_rng(2)
    cluster = np.repeat(np.arange(60), 30)
    values, errors = [], []
    for _ in range(300):
        z = rng.normal(1, 1, 1800) + np.repeat(rng.normal(0, 1, 60), 30)
        y = rng.random(1800) < 1 / (1 + np.exp(-z - np.repeat(rng.normal(0, 1, 60), 30)))
        found = compute_auroc(z, y, cluster)
        values.append(found.value)
        errors.append(found.se)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


def test_one_cluster_has_no_interval() -> None:
    """A single prompt says nothing of others."""
    found = compute_auroc([1, 2, 3], [0, 1, 1], [5, 5, 5])
    assert found.value == 1.0
    assert found.se is None


def test_paired_difference_of_auroc_has_the_interval_of_a_cluster_jackknife() -> None:
    """Calibrated minus raw over the same prompts: the standard error is that of leaving one prompt out at a time."""
    rounds = synthetic_rounds(
        np.random.default_rng(2), prompts=60, rounds_per_prompt=80, temperatures=[1.5, 3.0, 0.5], prompt_effect_sd=0.6
    )
    temperatures = (1.5, 3.0, 0.5)
    calibration = Calibration(temperatures=temperatures, dataset="synthetic", num_samples=1)
    found = evaluate(Trace.of(rounds, synthetic_provenance(3)), calibration, draws=10).groups[0].change
    assert found is not None
    raw, new = log_survival(rounds.confidence_logits), log_survival(rounds.confidence_logits, temperatures)
    for k in (1, 2):  # one temperature alone changes no order
        y, prompt = rounds.accepted > k, rounds.prompt_id.codes

        def difference(rows: np.ndarray, k: int = k, y: np.ndarray = y) -> float:
            return float(roc_auc_score(y[rows], new[rows, k]) - roc_auc_score(y[rows], raw[rows, k]))

        without = np.array([difference(prompt != p) for p in range(60)])
        jackknife = np.sqrt(59 / 60 * ((without - without.mean()) ** 2).sum())
        estimate = found.auroc[k]
        assert estimate.value == pytest.approx(difference(np.ones(len(y), bool)), abs=3e-5)
        assert estimate.se == pytest.approx(jackknife, rel=0.06)
        assert estimate.low < estimate.value < estimate.high
