"""Verification policies against brute force, line-by-line references and their own definitions."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_calib.scheduling.early_stop import early_stop_lengths
from dspark_calib.scheduling.fixed import FixedLength
from dspark_calib.scheduling.policy import Floats, Step
from dspark_calib.scheduling.prefix_order import order_prefixes
from dspark_calib.scheduling.search import search_lengths
from dspark_calib.scheduling.threshold import threshold_lengths


def throughput(survival: Floats, lengths: Sequence[int], speeds: Floats) -> float:
    """Θ of one assignment, by its definition."""
    tokens = len(survival) + sum(survival[r][:length].sum() for r, length in enumerate(lengths))
    return tokens * speeds[len(survival) + sum(lengths)]


def best_by_enumeration(survival: Floats, speeds: Floats) -> float:
    """The highest Θ over every ℓ in {0..γ}^R whose drafts can be accepted (a > 0, as in the paper)."""
    possible = (survival > 0).sum(axis=1)
    return max(throughput(survival, x, speeds) for x in itertools.product(*(range(n + 1) for n in possible)))


def algorithm_1(survival: Floats, speeds: Floats) -> list[int]:
    """Algorithm 1, line by line as the paper states it."""
    requests, gamma = survival.shape
    pairs = [(survival[r, j], r, j + 1) for r in range(requests) for j in range(gamma) if survival[r, j] > 0]
    pairs.sort(key=lambda p: -p[0])  # Python's sort is stable: ties stay by request, then position
    lengths, batch, expected = [0] * requests, requests, float(requests)
    best = requests * speeds[requests]
    for a, r, j in pairs:
        batch, expected = batch + 1, expected + a
        if expected * speeds[batch] <= best:
            break
        best, lengths[r] = expected * speeds[batch], j
    return lengths


@st.composite
def steps(draw: st.DrawFn, *, unimodal: bool = False) -> tuple[Floats, Floats]:
    """A small step: confidences (with ties, zeros and ones) and a curve, jagged unless asked otherwise."""
    requests, gamma = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    levels = st.sampled_from([0.0, 0.25, 0.5, 0.5, 0.9, 1.0]) | st.floats(0, 1)
    c = np.array(draw(st.lists(levels, min_size=requests * gamma, max_size=requests * gamma)))
    largest = requests * (1 + gamma)
    speeds = np.array(draw(st.lists(st.floats(0.05, 2.0), min_size=largest + 1, max_size=largest + 1)))
    if unimodal:
        # 1/SPS affine in B: τ is concave along the order and B/SPS affine, so τ·SPS has one peak
        base, slope = draw(st.floats(0.1, 2.0)), draw(st.floats(0.0, 1.0))
        speeds = 1.0 / (base + slope * np.arange(largest + 1))
    return np.cumprod(c.reshape(requests, gamma), axis=1), speeds


@given(steps())
@settings(max_examples=300, deadline=None)
def test_search_equals_brute_force_on_jagged_curves(case: tuple[Floats, Floats]) -> None:
    """No assignment of lengths beats the unconstrained search, whatever the curve."""
    survival, speeds = case
    lengths = search_lengths(survival, speeds)
    assert throughput(survival, lengths.tolist(), speeds) == pytest.approx(best_by_enumeration(survival, speeds))


@given(steps(unimodal=True))
@settings(max_examples=300, deadline=None)
def test_algorithm_1_equals_brute_force_on_unimodal_curves(case: tuple[Floats, Floats]) -> None:
    """With a single peak the early stop loses nothing."""
    survival, speeds = case
    lengths = early_stop_lengths(survival, speeds)
    assert throughput(survival, lengths.tolist(), speeds) == pytest.approx(
        best_by_enumeration(survival, speeds), rel=1e-12
    )


@given(steps())
@settings(max_examples=300, deadline=None)
def test_algorithm_1_is_the_papers(case: tuple[Floats, Floats]) -> None:
    """The array form gives exactly the lengths of the paper's loop, ties and early stop included."""
    survival, speeds = case
    assert early_stop_lengths(survival, speeds).tolist() == algorithm_1(survival, speeds)


@given(steps())
@settings(max_examples=100, deadline=None)
def test_lengths_stay_within_the_block_and_skip_hopeless_drafts(case: tuple[Floats, Floats]) -> None:
    """Every policy verifies 0..γ drafts and never one that cannot be accepted."""
    survival, speeds = case
    for choose in (early_stop_lengths, search_lengths):
        lengths = choose(survival, speeds)
        assert lengths.shape == (len(survival),)
        assert (lengths >= 0).all()
        assert (lengths <= (survival > 0).sum(axis=1)).all()


@given(steps())
@settings(max_examples=100, deadline=None)
def test_every_budget_is_made_of_prefixes(case: tuple[Floats, Floats]) -> None:
    """The n-th draft of a request in the order is its n-th position: no draft comes before its predecessor."""
    survival, _ = case
    order = order_prefixes(survival)
    gains = np.diff(order.expected)
    taken = [0] * len(survival)
    for request, gain in zip(order.requests.tolist(), gains, strict=True):
        assert gain == pytest.approx(survival[request, taken[request]])
        taken[request] += 1
    assert taken == (survival > 0).sum(axis=1).tolist()
    assert np.all(np.diff(gains) <= 1e-12)


@given(steps(), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_budget_ends_with_the_curve(case: tuple[Floats, Floats], end: int) -> None:
    """Where the curve ends (speed 0) no draft is chosen."""
    survival, speeds = case
    end = max(end, len(survival))
    speeds = np.where(np.arange(len(speeds)) > end, 0.0, speeds)
    for choose in (early_stop_lengths, search_lengths):
        assert len(survival) + choose(survival, speeds).sum() <= end


def test_ties_go_to_the_earlier_request() -> None:
    """Equal survivals are admitted in order of requests, then positions."""
    survival = np.full((3, 2), 0.5)
    speeds = np.array([0, 0, 0, 1.0, 1.0, 1.0, 1.0, 0, 0, 0])  # room for three drafts
    assert search_lengths(survival, speeds).tolist() == [2, 1, 0]
    assert early_stop_lengths(survival, speeds).tolist() == [2, 1, 0]


def test_search_takes_the_last_of_equal_maxima() -> None:
    """Θ(0) = 1·1 and Θ(1) = 1.25·0.8 are equal: the larger budget is taken, where Algorithm 1 stops at none."""
    survival, speeds = np.array([[0.25]]), np.array([0, 1.0, 0.8])
    assert search_lengths(survival, speeds).tolist() == [1]
    assert early_stop_lengths(survival, speeds).tolist() == [0]


def test_threshold_cuts_at_the_first_low_confidence() -> None:
    """DeepSpec's rule: the first c_k below the threshold cuts, whatever follows."""
    c = [[0.9, 0.6, 0.7], [0.5, 0.4, 0.9], [0.4, 1.0, 1.0]]
    assert threshold_lengths(c, 0.5).tolist() == [3, 1, 0]
    assert threshold_lengths(c, 0.0).tolist() == [3, 3, 3]


def test_fixed_length_never_exceeds_the_block() -> None:
    """A fixed length above γ verifies γ."""
    step = Step(
        confidence=np.ones((2, 3)), survival=np.ones((2, 3)), lagged_survival=np.ones((2, 3)), speeds=np.ones(9)
    )
    assert FixedLength().verified_lengths(step).tolist() == [3, 3]
    assert FixedLength(length=2).verified_lengths(step).tolist() == [2, 2]
    assert FixedLength(length=9).verified_lengths(step).tolist() == [3, 3]
