"""Intervals by prompt against resampling and against cases that can be done by hand."""

import numpy as np
import pytest

from dspark_calib.scheduling.prompt_ratio import compare_ratios, ratio_interval


def test_ratio_interval_by_hand() -> None:
    """x = (1, 3), y = (1, 1): ratio 2, influences ±1/2, variance 2·(1/4 + 1/4) = 1, t(1) = 12.706."""
    interval = ratio_interval(np.array([1.0, 3.0]), np.array([1.0, 1.0]))
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((2 - 12.7062, 2 + 12.7062), rel=1e-5)


def test_ratio_interval_agrees_with_resampling_prompts() -> None:
    """Its standard error is that of a bootstrap over prompts."""
    rng = np.random.default_rng(0)
    y = rng.uniform(5, 50, 400)
    x = y * rng.gamma(4.0, 0.5, 400)
    interval = ratio_interval(x, y)
    assert interval is not None
    picks = rng.integers(400, size=(4000, 400))
    spread = float((x[picks].sum(axis=1) / y[picks].sum(axis=1)).std())
    assert (interval.high - interval.low) / (2 * 1.966) == pytest.approx(spread, rel=0.05)


def test_unserved_prompts_do_not_count() -> None:
    """A prompt that was never drawn is no observation."""
    x, y = np.array([1.0, 3.0, 2.0]), np.array([1.0, 1.5, 2.0])
    assert ratio_interval(x, y) == ratio_interval(np.r_[x, 0.0], np.r_[y, 0.0])


def test_one_prompt_has_no_interval() -> None:
    """With a single cluster nothing is said about the spread."""
    assert ratio_interval(np.array([2.0]), np.array([1.0])) is None
    assert compare_ratios((np.array([2.0]), np.array([1.0])), (np.array([1.0]), np.array([1.0]))).interval is None


def test_paired_comparison_cancels_what_prompts_share() -> None:
    """The same rates in both give exactly no difference; a common factor is found exactly."""
    rng = np.random.default_rng(1)
    x, y = rng.uniform(1, 9, 50), rng.uniform(1, 9, 50)
    same = compare_ratios((x, y), (x, y))
    assert same.value == 0.0
    assert same.interval is not None
    assert (same.interval.low, same.interval.high) == (0.0, 0.0)
    faster = compare_ratios((1.1 * x, y), (x, y))
    assert faster.value == pytest.approx(0.1)
    assert faster.clearly_positive
    assert faster.negated().clearly_negative


def test_paired_interval_agrees_with_resampling_prompts() -> None:
    """The paired interval covers what resampling whole prompts gives."""
    rng = np.random.default_rng(2)
    y1, y2 = rng.uniform(5, 50, (2, 300))
    difficulty = rng.gamma(4.0, 0.5, 300)
    x1, x2 = y1 * difficulty * rng.normal(1.05, 0.1, 300), y2 * difficulty
    change = compare_ratios((x1, y1), (x2, y2))
    picks = rng.integers(300, size=(4000, 300))
    drawn = (x1[picks].sum(1) / y1[picks].sum(1)) / (x2[picks].sum(1) / y2[picks].sum(1)) - 1
    assert change.interval is not None
    assert (change.interval.high - change.interval.low) / (2 * 1.968) == pytest.approx(float(drawn.std()), rel=0.08)
