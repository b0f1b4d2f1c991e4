"""An estimate against a limit: intervals, the data a decision needs, and the ECE without its noise."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_calib.decision.estimate_at_limit import (
    ALPHA,
    Measured,
    level_with_floor,
    remove_floor,
    smallest_detectable,
)

NORMAL = NormalDist()


def test_p_value_and_interval_agree() -> None:
    """The p-value is at most the level iff the interval at that level lies above the limit."""
    measured = Measured(value=0.05, se=0.01)
    assert measured.p_above(0.03) == pytest.approx(1 - NORMAL.cdf(2.0))
    assert measured.interval(ALPHA, ALPHA) == pytest.approx((0.05 - 0.0195996, 0.05 + 0.0195996), abs=1e-6)
    assert measured.low(measured.p_above(0.03)) == pytest.approx(0.03)


def test_an_estimate_without_error_is_its_own_interval() -> None:
    """se = 0 decides by comparison, and on the limit by nothing."""
    assert Measured(value=0.2, se=0.0).p_above(0.1) == 0.0
    assert Measured(value=0.0, se=0.0).p_above(0.1) == 1.0
    assert Measured(value=0.1, se=0.0).p_above(0.1) == 0.5


def test_measures_that_are_better_when_larger_come_back_the_right_way() -> None:
    """A flipped measure shows its interval in its own direction."""
    low, high = Measured(value=-0.8, se=0.01, flipped=True).interval(ALPHA, ALPHA)
    assert low < 0.8 < high
    assert low == pytest.approx(0.78, abs=1e-3)


@given(st.floats(0.001, 0.2), st.floats(0.001, 0.05), st.floats(0.001, 0.2))
def test_more_data_by_the_factor_decides(value: float, se: float, limit: float) -> None:
    """With the standard error that so many more prompts give, the end of the interval touches the limit."""
    factor = Measured(value=value, se=se).data_factor(limit, ALPHA)
    if factor is None:
        assert value == pytest.approx(limit, abs=1e-6)
        return
    better = Measured(value=value, se=se / math.sqrt(factor))
    assert (better.low(ALPHA) if value > limit else better.high(ALPHA)) == pytest.approx(limit)


def test_the_smallest_detectable_increase_has_ninety_per_cent_power() -> None:
    """A true increase of that size exceeds the critical value in 90 % of samples."""
    se, level = 0.01, 0.0036
    critical = NORMAL.inv_cdf(1 - level) * se
    assert 1 - NORMAL.cdf((critical - smallest_detectable(se, level)) / se) == pytest.approx(0.9)


def test_the_floor_is_taken_out() -> None:
    """0.05 measured at a floor of 0.03 is 0.04; at or below its floor an ECE shows nothing."""
    assert remove_floor(0.05, 0.03) == pytest.approx(0.04)
    assert remove_floor(0.03, 0.03) == 0.0
    assert remove_floor(-0.02, 0.03) == 0.0
    assert level_with_floor(0.05, 0.03, 0.03) == pytest.approx(0.05)
    assert level_with_floor(0.05, 0.03, 0.0) == pytest.approx(0.04)
    assert level_with_floor(0.01, 0.03, 0.02) == 0.0


@given(st.floats(0, 0.3), st.floats(1e-4, 0.1), st.floats(0, 0.1), st.floats(1e-3, 0.3), st.floats(1e-4, 0.4))
def test_p_value_and_interval_agree_with_a_floor(
    value: float, se: float, floor: float, limit: float, level: float
) -> None:
    """Holding the plug-in against the lifted limit is holding the interval without its floor against the limit."""
    measured = Measured(value=value, se=se, floor=floor)
    low = measured.low(level)
    if abs(low - limit) > 1e-9:
        assert (low > limit) == (measured.p_above(limit) < level)


@pytest.mark.parametrize("error", [0.0, 0.02, 0.05])
def test_debiased_ece_of_small_samples_is_right_on_average(error: float) -> None:
    """1,000 samples of 2,500 rounds with a true ECE of 0, .02 and .05: the mean is right to .008.

    p is uniform on 20 bins' centres and y ~ Bernoulli(p ± error), so the true ECE is `error`; the floor is its
    closed form √(2/π) Σ √(w p(1-p)) / √n (Bröcker 2012).
    """
    rng = np.random.default_rng(0)
    centres = (np.arange(20) + 0.5) / 20
    shift = np.where(centres < 0.5, error, -error)
    n = 125
    hits = rng.binomial(n, np.clip(centres + shift, 0, 1), (1000, 20))
    plug_in = np.abs(hits / n - centres).mean(axis=1)
    floor = math.sqrt(2 / math.pi) * np.sqrt(centres * (1 - centres) / n).mean()
    debiased = np.array([remove_floor(v, floor) for v in plug_in.tolist()])
    assert debiased.mean() == pytest.approx(error, abs=0.008)
    if error < floor:
        assert abs(debiased.mean() - error) < abs(plug_in.mean() - error)
