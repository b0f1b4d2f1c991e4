"""Holm's levels against the closure principle, and the combination of outcomes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_calib.decision.multiplicity import holm_levels
from dspark_calib.decision.outcome import Outcome, combine_outcomes


def closed_testing(p_values: list[float], alpha: float) -> list[bool]:
    """Reject i iff every intersection that holds i is rejected by Bonferroni (Marcus, Peritz, Gabriel 1976)."""
    indices = range(len(p_values))
    subsets = [s for r in range(1, len(p_values) + 1) for s in itertools.combinations(indices, r)]
    rejected = {s for s in subsets if min(p_values[i] for i in s) <= alpha / len(s)}
    return [all(s in rejected for s in subsets if i in s) for i in indices]


@given(st.lists(st.sampled_from([0.0, 0.001, 0.004, 0.006, 0.008, 0.0126, 0.02, 0.024, 0.3, 1.0]), max_size=7))
def test_holm_is_closed_testing_with_bonferroni(p_values: list[float]) -> None:
    """p ≤ level decides exactly as the enumeration of all intersections does."""
    levels = holm_levels(p_values, 0.025)
    assert [p <= level for p, level in zip(p_values, levels, strict=True)] == closed_testing(p_values, 0.025)


def test_levels_by_hand() -> None:
    """α/3, then α/2 where it stops; what comes after keeps that level."""
    assert holm_levels([0.9, 0.01, 0.03], 0.05) == pytest.approx((0.025, 0.05 / 3, 0.025))


@pytest.mark.parametrize(
    ("outcomes", "whole"),
    [("ppp", "pass"), ("pip", "inconclusive"), ("pif", "fail"), ("", "inconclusive")],
)
def test_any_failure_fails_and_anything_open_stays_open(outcomes: str, whole: str) -> None:
    """Fail before inconclusive before pass; an empty gate has shown nothing."""
    names = {"p": Outcome.PASS, "i": Outcome.INCONCLUSIVE, "f": Outcome.FAIL}
    assert combine_outcomes(names[o] for o in outcomes).value == whole
