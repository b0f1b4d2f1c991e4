"""The algebra of confidences against hand arithmetic and high-precision references."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dspark_calib.survival import (
    conditional_mask,
    confidence,
    log_sigmoid,
    log_survival,
    observed_mask,
    prefix_labels,
    prefix_survival,
    sigmoid,
)

LOGITS = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(-50, 50, width=32)
)


def test_hand_worked_block() -> None:
    """Logits (2, 1, 0) give survivals .880797, .643914, .321957 and expected length 2.846668."""
    a = prefix_survival([[2.0, 1.0, 0.0]])[0]
    assert a == pytest.approx([0.880797, 0.643914, 0.321957], abs=1e-6)
    assert 1 + a.sum() == pytest.approx(2.846668, abs=1e-6)


def test_prefix_labels_and_conditional_acceptance_of_known_lengths() -> None:
    """Accepted lengths 3, 0, 7, 5 of 7 give the prefix table and conditional rates 3/4, 1, 1, 2/3, 1, 1/2, 1."""
    accepted, observed = np.array([3, 0, 7, 5]), np.full(4, 7)
    labels = prefix_labels(accepted, 7)
    assert labels.astype(int).tolist() == [
        [1, 1, 1, 0, 0, 0, 0],
        [0] * 7,
        [1] * 7,
        [1, 1, 1, 1, 1, 0, 0],
    ]
    judged = conditional_mask(accepted, observed, 7)
    rates = (labels & judged).sum(axis=0) / judged.sum(axis=0)
    assert rates == pytest.approx([3 / 4, 1, 1, 2 / 3, 1, 1 / 2, 1])


def test_positions_after_an_accepted_end_are_unobserved() -> None:
    """A block of 2 accepted drafts that ended the response says nothing about positions 3 and 4."""
    assert observed_mask([2], 4).tolist() == [[True, True, False, False]]
    assert conditional_mask([2], [2], 4).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("z", [-800.0, -36.8, -1.0, 0.0, 1e-9, 7.625, 16.640625, 36.8, 800.0])
def test_sigmoid_and_its_logarithm_at_extremes(z: float) -> None:
    """No overflow: σ and log σ agree with the exact formulas where float64 can hold them."""
    exact = 1 / (1 + math.exp(-z)) if z > -700 else 0.0
    assert sigmoid(z) == pytest.approx(exact, rel=1e-15, abs=1e-300)
    exact_log = -math.log1p(math.exp(-z)) if z > -30 else z
    assert log_sigmoid(z) == pytest.approx(exact_log, rel=1e-12)


def test_order_across_requests_can_change_with_temperature() -> None:
    """Scaling positions differently reverses a₂ of A = (4, .3228) and B = (0, 4.595)."""
    logits = [[4.0, 0.3228], [0.0, 4.595]]
    raw, scaled = prefix_survival(logits)[:, 1], prefix_survival(logits, [3.0, 1.0])[:, 1]
    assert raw == pytest.approx([0.5696, 0.4950], abs=1e-4)
    assert scaled == pytest.approx([0.4590, 0.4950], abs=1e-4)


@given(LOGITS)
def test_survival_falls_and_stays_below_confidence(logits: np.ndarray) -> None:
    """a_k never rises with k and never exceeds c_k; its logarithm agrees where it does not underflow."""
    a, c = prefix_survival(logits), confidence(logits)
    assert np.all(np.diff(a, axis=1) <= 0)
    assert np.all(a <= c)
    np.testing.assert_allclose(np.log(a), log_survival(logits), rtol=1e-9, atol=1e-12)


@given(LOGITS, st.floats(0.1, 10))
def test_temperature_keeps_the_order_within_a_position(logits: np.ndarray, t: float) -> None:
    """z/T with T > 0 orders confidences of one position as z does; T = 1 changes nothing."""
    scaled = confidence(logits, np.full(logits.shape[1], t))
    for k in range(logits.shape[1]):
        assert np.all(np.diff(scaled[np.argsort(logits[:, k], kind="stable"), k]) >= 0)
    assert np.array_equal(confidence(logits), confidence(logits, np.ones(logits.shape[1])))


@pytest.mark.parametrize("temperatures", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]])
def test_impossible_temperatures_are_refused(temperatures: list[float]) -> None:
    """Temperatures are γ positive finite numbers."""
    with pytest.raises(ValueError, match="2 positive finite"):
        prefix_survival([[1.0, 2.0]], temperatures)
