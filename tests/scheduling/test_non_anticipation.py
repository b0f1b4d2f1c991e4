"""The paper's Appendix A, and which policies a trace shows to be anticipating."""

import numpy as np
import pytest

from dspark_calib.scheduling.confidence_source import Confidences, confidences_from
from dspark_calib.scheduling.curve import make_curve
from dspark_calib.scheduling.deepinfer import DeepInferVarlen
from dspark_calib.scheduling.deepinfer_cost import StepCost
from dspark_calib.scheduling.early_stop import EarlyStop, early_stop_lengths
from dspark_calib.scheduling.fixed import FixedLength
from dspark_calib.scheduling.non_anticipation import check_non_anticipation
from dspark_calib.scheduling.policy import CappedPolicy, Policy
from dspark_calib.scheduling.search import UnconstrainedSearch, search_lengths
from dspark_calib.scheduling.threshold import ConfidenceThreshold, SurvivalThreshold

# Appendix A: one request, two drafts, a_1 = 0.8; c_2 is 0.9 after x_1 = A and 0 after x_1 = B
SPEEDS = np.array([0.0, 1.0, 0.5, 0.45])
SURVIVAL = {"A": np.array([[0.8, 0.8 * 0.9]]), "B": np.array([[0.8, 0.0]])}
TARGET = {"A": 0.7, "B": 0.3}
DRAFT = {"A": 0.5, "B": 0.5}


def best_throughput(survival: np.ndarray) -> float:
    """Θ of the best budget above none, by hand: (1 + Σa)·SPS."""
    one, two = (1 + survival[0, 0]) * SPEEDS[2], (1 + survival[0].sum()) * SPEEDS[3]
    return float(max(one if survival[0, 1] > 0 else 0, two))


def test_appendix_a_throughputs() -> None:
    """Two drafts reach Θ = 1.134 after A and 0.81 after B, against 1.0 for none."""
    assert best_throughput(SURVIVAL["A"]) == pytest.approx(1.134)
    assert (1 + SURVIVAL["B"][0].sum()) * SPEEDS[3] == pytest.approx(0.81)
    assert search_lengths(SURVIVAL["A"], SPEEDS).tolist() == [2]
    assert search_lengths(SURVIVAL["B"], SPEEDS).tolist() == [0]
    assert early_stop_lengths(SURVIVAL["A"], SPEEDS).tolist() == [0]
    assert early_stop_lengths(SURVIVAL["B"], SPEEDS).tolist() == [0]


def output_law(admitted: dict[str, bool]) -> dict[str, float]:
    """Law of the first token by enumeration: verify x_1 where it is admitted, else draw from the target."""
    law = {"A": 0.0, "B": 0.0}
    residual = {t: max(TARGET[t] - DRAFT[t], 0.0) for t in law}
    total = sum(residual.values())
    for x, q in DRAFT.items():
        accept = min(1.0, TARGET[x] / q) if admitted[x] else 0.0
        law[x] += q * accept
        otherwise = {t: r / total for t, r in residual.items()} if admitted[x] else TARGET
        for token, p in otherwise.items():
            law[token] += q * (1 - accept) * p
    return law


def test_appendix_a_output_law() -> None:
    """The anticipating search writes A with .85 instead of .7; Algorithm 1 keeps the target's law."""
    searched = output_law({x: bool(search_lengths(a, SPEEDS)[0] >= 1) for x, a in SURVIVAL.items()})
    stopped = output_law({x: bool(early_stop_lengths(a, SPEEDS)[0] >= 1) for x, a in SURVIVAL.items()})
    always = output_law({"A": True, "B": True})
    assert searched == pytest.approx({"A": 0.85, "B": 0.15})
    assert stopped == pytest.approx(TARGET)
    assert always == pytest.approx(TARGET)


@pytest.fixture(scope="module")
def confidences() -> Confidences:
    """Random confidences with ties, zeros and ones."""
    rng = np.random.default_rng(1)
    return confidences_from("raw", rng.choice([0.0, 0.3, 0.5, 0.8, 0.9, 0.97, 1.0], (500, 3)))


JAGGED = make_curve(np.arange(1, 17), 1 / np.array([1, 2.1, 2.2, 2.3, 3.0, 2.9, 4, 3.5, 4.5, 4.2, 5, 4, 6, 5, 7, 6]))
SMOOTH = make_curve(np.arange(1, 17), 1 / (1 + 0.3 * np.arange(1, 17)))


@pytest.mark.parametrize(
    "policy",
    [
        FixedLength(length=2),
        ConfidenceThreshold(threshold=0.6),
        SurvivalThreshold(threshold=0.4),
        EarlyStop(),
        DeepInferVarlen(curve=JAGGED, cost=StepCost()),
        CappedPolicy(inner=EarlyStop(), gamma=2),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 3])
def test_lossless_policies_never_anticipate(confidences: Confidences, policy: Policy, concurrency: int) -> None:
    """No admission depends on later confidences, jagged curve and ties included, and the policy says so."""
    check = check_non_anticipation(
        policy,
        confidences,
        JAGGED.speeds_by_tokens(16),
        concurrency=concurrency,
        rng=np.random.default_rng(2),
        steps=100,
    )
    assert check.decisions == 100 * concurrency * 2 * 3
    assert check.non_anticipating
    assert check.example is None
    assert not policy.anticipates


def test_search_anticipates_on_a_jagged_curve(confidences: Confidences) -> None:
    """The unconstrained search is caught, with an example that can be checked by hand."""
    speeds = JAGGED.speeds_by_tokens(16)
    policy = UnconstrainedSearch()
    check = check_non_anticipation(policy, confidences, speeds, concurrency=1, rng=np.random.default_rng(2))
    assert policy.anticipates
    assert not check.non_anticipating
    example = check.example
    assert example is not None
    start = confidences.conditional[example.row, : example.position]
    for length, tail in zip(example.lengths, example.later_confidences, strict=True):
        assert search_lengths(np.cumprod(np.r_[start, tail])[None, :], speeds).tolist() == [length]
    assert (example.lengths[0] >= example.position) != (example.lengths[1] >= example.position)


def test_search_does_not_anticipate_on_a_smooth_curve(confidences: Confidences) -> None:
    """With a single peak the search equals the early stop, so nothing is caught."""
    check = check_non_anticipation(
        UnconstrainedSearch(),
        confidences,
        SMOOTH.speeds_by_tokens(16),
        concurrency=2,
        rng=np.random.default_rng(3),
    )
    assert check.non_anticipating
