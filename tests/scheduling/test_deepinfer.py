"""DeepInfer's scheduler against 400 answers of DeepInfer 0.1.0 itself."""

import gzip
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_calib.errors import CurveError
from dspark_calib.scheduling.curve import SpsCurve, make_curve
from dspark_calib.scheduling.deepinfer import (
    DeepInferVarlen,
    deepinfer_budget,
    deepinfer_device_lengths,
    deepinfer_lengths,
    fill_missing_rates,
)
from dspark_calib.scheduling.deepinfer_cost import MeasuredStep, StepCost, estimate_step_cost
from dspark_calib.scheduling.policy import Floats, Integers, Step

CASES = Path(__file__).parents[1] / "data" / "deepinfer-schedule" / "cases.jsonl.gz"


def recorded_cases() -> list[dict[str, Any]]:
    """The recorded inputs and answers."""
    with gzip.open(CASES, "rt") as lines:
        return [json.loads(line) for line in lines]


def query_lengths(case: dict[str, Any]) -> list[int]:
    """What our form answers to a recorded case."""
    requests = case["requests"]
    gamma = requests[0]["drafts"]
    curve = make_curve([b for b, _ in case["curve"]], [1000 / ms for _, ms in case["curve"]], lookup="ceiling")
    steps = [
        MeasuredStep(num_requests=n, graph_size=g, forward_ms=f, sampler_ms=s) for n, g, f, s in case["runtime_updates"]
    ]
    # a request that is not paired has drafts in flight, and its accept_rates are those of round N-2
    has_draft = [r["has_draft"] or not r["paired"] for r in requests]
    older = [r["prev_accept_rates"] if r["paired"] else r["accept_rates"] for r in requests]
    newer = [r["accept_rates"] for r in requests]
    budget_rates, length_rates = (
        fill_missing_rates([rates or [np.nan] * gamma for rates in queue], has_draft) for queue in (older, newer)
    )
    cost = estimate_step_cost(steps, curve, len(requests))
    return (1 + deepinfer_lengths(budget_rates, length_rates, curve, cost)).tolist()


def test_all_400_recorded_schedules() -> None:
    """Every query length of every recorded case is reproduced exactly."""
    cases = recorded_cases()
    assert len(cases) == 400
    assert [i for i, case in enumerate(cases) if query_lengths(case) != case["query_lengths"]] == []


def test_cost_terms_matter_in_the_recorded_cases() -> None:
    """The cases would tell a missing slope or sampler term: dropping either changes some answers."""
    busy = [case for case in recorded_cases() if case["runtime_updates"]]
    without = [query_lengths(case | {"runtime_updates": []}) != case["query_lengths"] for case in busy]
    assert sum(without) > 0


def test_no_curve_verifies_everything() -> None:
    """Without a curve DeepInfer verifies every draft."""
    rates = np.full((3, 4), 0.1)
    assert deepinfer_lengths(rates, rates, None, StepCost()).tolist() == [4, 4, 4]


def test_requests_past_the_curve_are_refused() -> None:
    """DeepInfer aborts when R alone is past the last point; so do we, with the reason."""
    curve = make_curve([1, 2], [3.0, 2.0], lookup="ceiling")
    with pytest.raises(CurveError, match="3 requests are past the last point"):
        deepinfer_budget(np.ones((3, 1)), curve, StepCost())


def test_missing_rates_depend_on_drafts() -> None:
    """Unknown rates are 1 for a request with drafts and 0 for one without."""
    assert fill_missing_rates([[np.nan, np.nan], [0.5, 0.2], [np.nan, np.nan]], [True, True, False]).tolist() == [
        [1.0, 1.0],
        [0.5, 0.2],
        [0.0, 0.0],
    ]


def device_lengths_literally(confidence: Floats, remap: Integers, total: int) -> list[int]:
    """The allocation in loops over (rate, flat index) pairs."""
    gamma = confidence.shape[1]
    entries = []
    for r, source in enumerate(remap):
        rate = np.float32(1.0)
        for k in range(gamma):
            rate = np.float32(rate * np.float32(confidence[source, k]))
            entries.append((-(rate if source >= 0 else np.float32(0)), r * gamma + k))
    lengths = [0] * len(remap)
    for _, flat in sorted(entries)[: total - len(remap)]:
        lengths[flat // gamma] += 1
    return lengths


def test_device_allocation_equals_its_loops() -> None:
    """Gathering, running products and the stable ranking agree with a literal form on random batches with ties."""
    rng = np.random.default_rng(7)
    for _ in range(50):
        rows, requests, gamma = rng.integers(1, 6), rng.integers(1, 6), rng.integers(1, 5)
        confidence = rng.choice([0.25, 0.5, 0.5, 1.0, 0.0], (rows, gamma))
        remap = rng.integers(-1, rows, requests)
        total = int(requests + rng.integers(0, requests * gamma + 1))
        got = deepinfer_device_lengths(confidence, remap, total)
        assert got.tolist() == device_lengths_literally(confidence, remap, total)
        assert got.sum() == total - requests


def test_slope_needs_ten_steps_of_a_graph() -> None:
    """The slope is 0 until a graph has 10 samples, then the median over graphs of the median excess a token."""
    curve = make_curve([4, 8], [1000 / 5.0, 1000 / 6.0], lookup="ceiling")
    step = MeasuredStep(num_requests=3, graph_size=4, forward_ms=7.0, sampler_ms=0.5)
    assert estimate_step_cost([step] * 9, curve, 3).slope_ms == 0
    assert estimate_step_cost([step] * 10, curve, 3).slope_ms == pytest.approx((7.0 - 5.0) / 4)


def test_sampler_window() -> None:
    """The last 9 steps of the same R count when there are 5, else all steps when there are 5, else nothing."""
    curve = make_curve([4], [200.0], lookup="ceiling")

    def served(times: list[float], requests: int) -> list[MeasuredStep]:
        return [MeasuredStep(num_requests=requests, graph_size=4, forward_ms=5.0, sampler_ms=t) for t in times]

    assert estimate_step_cost(served([9.0, 9, 9, 9], 2), curve, 2).sampler_ms == 0
    assert estimate_step_cost(served([1.0, 1, 1, 1, 1], 2), curve, 7).sampler_ms == 1
    assert estimate_step_cost(served([9.0] * 8 + [1.0] * 9, 2) + served([50.0] * 4, 3), curve, 2).sampler_ms == 1


def test_replayed_policy_keeps_the_total_and_moves_lengths() -> None:
    """The total follows the previous round's rates, the lengths the current ones, and a new request yields."""
    curve = make_curve([2, 4, 6], [100.0, 90.0, 1.0], lookup="ceiling")
    step = Step(
        confidence=np.array([[0.9, 0.9], [0.2, 0.2], [0.99, 0.99]])[:2],
        survival=np.array([[0.9, 0.81], [0.2, 0.04]]),
        lagged_survival=np.array([[0.1, 0.1], [0.9, 0.9]]),
        speeds=np.ones(7),
    )
    # older rates: budget of 2 drafts (R + 2 = 4 at 90/s) beats 6 tokens at 1/s; newer rates give both to request 1
    assert DeepInferVarlen(curve=curve, cost=StepCost()).verified_lengths(step).tolist() == [2, 0]
    fresh = Step(
        confidence=step.confidence,
        survival=step.survival,
        lagged_survival=np.array([[np.nan, np.nan], [0.9, 0.9]]),
        speeds=step.speeds,
    )
    assert DeepInferVarlen(curve=curve, cost=StepCost()).verified_lengths(fresh).tolist() == [0, 2]


@st.composite
def batches(draw: st.DrawFn) -> tuple[Floats, SpsCurve, StepCost]:
    """Up to three requests with up to three drafts, a jagged curve that may end early, and learnt costs."""
    requests, gamma = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    levels = st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1)
    c = np.array(draw(st.lists(levels, min_size=requests * gamma, max_size=requests * gamma)))
    sizes = sorted(draw(st.sets(st.integers(1, 14), min_size=1, max_size=6)) | {requests})
    ms = draw(st.lists(st.floats(0.5, 20.0), min_size=len(sizes), max_size=len(sizes)))
    cost = StepCost(slope_ms=draw(st.floats(-0.1, 0.5)), sampler_ms=draw(st.floats(0.0, 2.0)))
    survival = np.cumprod(c.reshape(requests, gamma), axis=1)
    return survival, make_curve(sizes, 1000 / np.array(ms), lookup="ceiling"), cost


@given(batches())
@settings(max_examples=300, deadline=None)
def test_budget_equals_brute_force(case: tuple[Floats, SpsCurve, StepCost]) -> None:
    """With one set of rates no assignment of lengths that fits the curve has a higher expected throughput."""
    survival, curve, cost = case

    def throughput(lengths: Sequence[int]) -> float:
        size = len(survival) + sum(lengths)
        fitting = [(b, ms) for b, ms in zip(curve.tokens.tolist(), curve.step_ms.tolist(), strict=True) if b >= size]
        if not fitting:
            return -1.0
        graph, ms = fitting[0]
        expected = len(survival) + sum(survival[r, :length].sum() for r, length in enumerate(lengths))
        return float(expected / (ms + max(0.0, cost.slope_ms) * graph + cost.sampler_ms))

    chosen = deepinfer_lengths(survival, survival, curve, cost).tolist()
    every = itertools.product(range(survival.shape[1] + 1), repeat=len(survival))
    assert throughput(chosen) == pytest.approx(max(map(throughput, every)), rel=1e-6)  # it adds up in float32
    assert len(survival) + sum(chosen) <= curve.tokens[-1]
