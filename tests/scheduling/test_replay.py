"""Closed-loop replay against a plain loop over requests, and against what calibration must be worth."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dspark_calib.errors import CurveError, InsufficientData, PolicyError, TraceFormatError
from dspark_calib.scheduling.comparison import compute_simulation
from dspark_calib.scheduling.confidence_source import (
    calibrated_confidences,
    confidences_from,
    oracle_confidences,
    raw_confidences,
)
from dspark_calib.scheduling.curve import SpsCurve, make_curve
from dspark_calib.scheduling.deepinfer import DeepInferVarlen
from dspark_calib.scheduling.deepinfer_cost import StepCost
from dspark_calib.scheduling.early_stop import EarlyStop
from dspark_calib.scheduling.fixed import FixedLength
from dspark_calib.scheduling.policies import check_replayable
from dspark_calib.scheduling.policy import Policy
from dspark_calib.scheduling.replay import ReplayResult, replay_policy, throughput_change
from dspark_calib.scheduling.responses import responses_of
from dspark_calib.scheduling.search import UnconstrainedSearch
from dspark_calib.scheduling.threshold import ConfidenceThreshold
from dspark_calib.scheduling.visits import visit_rounds
from dspark_calib.trace import Trace, loop_trace, visited_rows

CURVE = make_curve([1, 8, 16, 32, 64], [200.0, 190.0, 195.0, 90.0, 60.0], lookup="ceiling")


def plain_replay(trace: Trace, lengths_of_row: list[int], concurrency: int, requests: int) -> dict[str, float]:
    """A closed loop in objects: each request walks its response's rows by anchor, one dict lookup at a time.

    `lengths_of_row` fixes the verified drafts of every row, as a policy without interaction would.
    """
    rounds = trace.read()
    responses: dict[int, dict[int, int]] = defaultdict(dict)
    for row, (prompt, anchor) in enumerate(zip(rounds.prompt_id.codes.tolist(), rounds.anchor.tolist(), strict=True)):
        responses[prompt][anchor] = row
    order = sorted(responses)
    sums: dict[str, float] = defaultdict(float)
    finished: set[int] = set()
    active: list[tuple[int, int, int]] = []  # request, prompt, anchor
    drawn = 0
    while len([f for f in finished if f < requests]) < requests:
        while len(active) < concurrency:
            prompt = order[drawn % len(order)]  # only one slot draws past the end, and its request is not counted
            active.append((drawn, prompt, min(responses[prompt])))
            drawn += 1
        rows = [responses[prompt][anchor] for _, prompt, anchor in active]
        batch = sum(1 + lengths_of_row[row] for row in rows)
        step = float(CURVE.seconds_by_tokens(batch)[batch])
        survivors = []
        for (request, prompt, anchor), row in zip(active, rows, strict=True):
            taken = min(int(rounds.accepted[row]), lengths_of_row[row])
            following = anchor + taken + 1
            last = int(rounds.prompt_length[row] + rounds.response_length[row]) - 1
            sums["tokens"] += min(following, last) - anchor
            sums["accepted"] += taken
            sums["verified"] += lengths_of_row[row]
            sums["rounds"] += 1
            if following < last:
                survivors.append((request, prompt, following))
            else:
                finished.add(request)
        sums["seconds"] += step
        active = survivors
    return sums


def test_replay_equals_a_plain_loop(every_anchor: Callable[..., Trace]) -> None:
    """Counts and time agree with a request that walks its responses one anchor at a time."""
    trace = every_anchor(prompts=12, anchors=30, temperatures=[1.5] * 4, seed=3)
    responses = responses_of(trace)
    raw = raw_confidences(responses.rounds)
    policy = ConfidenceThreshold(threshold=0.8)
    lengths = [next((k for k, c in enumerate(row) if c < 0.8), len(row)) for row in raw.conditional.tolist()]
    result = replay_policy(responses, raw, policy, CURVE, concurrency=1, requests=12)
    plain = plain_replay(trace, lengths, 1, 12)
    assert result.rounds == plain["rounds"]
    assert result.sums.tokens.sum() == plain["tokens"]
    assert result.sums.accepted.sum() == plain["accepted"]
    assert result.sums.verified.sum() == plain["verified"]
    assert result.step_seconds == pytest.approx(plain["seconds"], rel=1e-12)
    assert plain["tokens"] == 12 * 30  # every response token after the first is produced exactly once


@pytest.mark.parametrize("concurrency", [1, 5, 16])
def test_full_verification_visits_the_loop_rounds(every_anchor: Callable[..., Trace], concurrency: int) -> None:
    """At fixed γ the first pass visits exactly the rounds a decoding loop visits, at any concurrency."""
    trace = every_anchor(prompts=16, anchors=25, temperatures=[1.2] * 3, seed=5)
    responses = responses_of(trace)
    visits = visit_rounds(
        responses,
        raw_confidences(responses.rounds),
        FixedLength(),
        speeds=np.ones(200),
        concurrency=concurrency,
        requests=responses.count,
        seed=0,
    )
    np.testing.assert_array_equal(visits.rows_of_first_pass(responses.count), visited_rows(responses.rounds))


def test_every_response_token_is_produced_once_whatever_is_verified(every_anchor: Callable[..., Trace]) -> None:
    """Cutting verification changes the rounds, never the text: the first pass covers each response exactly."""
    trace = every_anchor(prompts=10, anchors=40, temperatures=[1.0] * 5, seed=2)
    responses = responses_of(trace)
    raw = raw_confidences(responses.rounds)
    policies: list[Policy] = [FixedLength(length=0), FixedLength(length=2), EarlyStop(), UnconstrainedSearch()]
    for policy in policies:
        visits = visit_rounds(
            responses, raw, policy, speeds=CURVE.speeds_by_tokens(30), concurrency=4, requests=10, seed=1
        )
        row, verified = visits.row.ravel(), visits.verified.ravel()
        first = visits.request.ravel() < 10
        tokens = np.minimum(np.minimum(responses.accepted[row], verified) + 1, responses.tokens_left[row])
        produced = np.bincount(visits.request.ravel()[first], weights=tokens[first])
        assert produced.tolist() == [40.0] * 10


def test_a_loop_trace_replays_full_verification_only(every_anchor: Callable[..., Trace]) -> None:
    """On loop anchors full verification gives the same numbers as on every anchor, and shortening is refused."""
    trace = every_anchor(prompts=8, anchors=30, temperatures=[1.0] * 3, seed=4)
    results = []
    for source in (trace, loop_trace(trace)):
        responses = responses_of(source)
        raw = raw_confidences(responses.rounds)
        results.append(replay_policy(responses, raw, FixedLength(), CURVE, concurrency=4, requests=8))
    assert results[0].to_dict() == results[1].to_dict()
    for policy in (FixedLength(length=2), EarlyStop()):
        with pytest.raises(PolicyError, match="--anchors all"):
            check_replayable(policy, 3, every_anchor=False, trace="trace")


def test_concurrency_above_the_prompts_draws_them_again(every_anchor: Callable[..., Trace]) -> None:
    """With more slots than responses, later passes come in a fixed shuffled order, each response once a pass."""
    trace = every_anchor(prompts=6, anchors=20, temperatures=[1.0] * 2, seed=6)
    responses = responses_of(trace)
    raw = raw_confidences(responses.rounds)

    def first_rows(seed: int) -> list[int]:
        visits = visit_rounds(
            responses, raw, FixedLength(), speeds=np.ones(100), concurrency=18, requests=18, seed=seed
        )
        return visits.row[0].tolist()

    starts = responses.start.tolist()
    drawn = first_rows(0)
    assert drawn[:6] == starts
    assert sorted(drawn[6:12]) == sorted(drawn[12:18]) == sorted(starts)
    assert drawn == first_rows(0)
    assert drawn != first_rows(1)
    simulation = compute_simulation(responses, [raw], [FixedLength()], CURVE, [18])
    assert "concurrency 18 is above the 6 responses" in simulation.warnings[0]


def test_concurrency_beyond_the_curve_is_refused(every_anchor: Callable[..., Trace]) -> None:
    """A load the curve does not cover is refused, not extrapolated."""
    responses = responses_of(every_anchor(prompts=3, anchors=10, temperatures=[1.0] * 2))
    with pytest.raises(CurveError, match="beyond the curve"):
        replay_policy(responses, raw_confidences(responses.rounds), FixedLength(), CURVE, concurrency=65)


def test_steps_larger_than_the_curve_are_counted_and_said(every_anchor: Callable[..., Trace]) -> None:
    """A policy that ignores the curve may overfill it; the replay says how often."""
    responses = responses_of(every_anchor(prompts=8, anchors=10, temperatures=[1.0] * 4))
    simulation = compute_simulation(
        responses, [raw_confidences(responses.rounds)], [FixedLength(), EarlyStop()], CURVE, [16]
    )
    fixed, early = simulation.replays
    assert fixed.oversized_steps == fixed.steps  # 16·5 = 80 tokens on a curve that ends at 64
    assert early.oversized_steps == 0
    assert any("run as several" in warning for warning in simulation.warnings)


def test_traces_that_cannot_be_replayed_are_refused(every_anchor: Callable[..., Trace]) -> None:
    """Cut rounds, calibrated logits and missing anchors are refused with the reason."""
    trace = every_anchor(prompts=3, anchors=10, temperatures=[1.0] * 2)
    rounds = trace.read()
    cut = replace(rounds, verified=np.where(np.arange(len(rounds)) == 4, 1, rounds.verified).astype(np.int16))
    with pytest.raises(TraceFormatError, match="row 4, verified = 1"):
        responses_of(Trace.of(cut, trace.provenance))
    unknown = replace(rounds, anchor=np.where(np.arange(len(rounds)) == 2, -1, rounds.anchor).astype(np.int32))
    with pytest.raises(TraceFormatError, match="row 2, anchor"):
        responses_of(Trace.of(unknown, replace(trace.provenance, anchor_policy=None)))
    with pytest.raises(TraceFormatError, match="raw logits"):
        responses_of(Trace.of(rounds, replace(trace.provenance, calibration_applied=(1.5, 1.5))))
    with pytest.raises(TraceFormatError, match="every anchor"):
        responses_of(Trace.of(rounds.take(np.arange(len(rounds)) != 3), trace.provenance))


POINTS = np.r_[1, 2, 4, 8, 16, 32, np.arange(64, 1025, 64)]
TEETH = np.tile([0.0, 0.8, -0.5, 0.3], 6)[: len(POINTS)] * (POINTS > 32)  # milliseconds that make a curve jagged


def jagged(ms_per_token: float) -> SpsCurve:
    """5 ms a step, more from 32 tokens on, with teeth."""
    return make_curve(POINTS, 1000 / (5 + ms_per_token * np.maximum(POINTS - 32, 0) + TEETH))


JAGGED = jagged(0.04)


@pytest.fixture(scope="module")
def overconfident(every_anchor: Callable[..., Trace]) -> Trace:
    """50,000 anchors whose raw logits are 1.6 times too large."""
    return every_anchor(prompts=250, anchors=200, temperatures=[1.6] * 5, seed=11, mean=0.6)


def replay_pair(
    trace: Trace, policy: Policy, concurrency: int, curve: SpsCurve = JAGGED
) -> tuple[ReplayResult, ReplayResult]:
    """One policy with raw and with truly calibrated confidences."""
    responses = responses_of(trace)
    raw = replay_policy(responses, raw_confidences(responses.rounds), policy, curve, concurrency=concurrency)
    true = calibrated_confidences(responses.rounds, [1.6] * 5)
    return raw, replay_policy(responses, true, policy, curve, concurrency=concurrency)


@pytest.mark.parametrize("concurrency", [64, 128])
@pytest.mark.parametrize("policy", [UnconstrainedSearch(), DeepInferVarlen(curve=JAGGED, cost=StepCost())])
def test_calibration_pays_on_an_overconfident_trace(overconfident: Trace, policy: Policy, concurrency: int) -> None:
    """On a jagged curve at high load calibrated confidences realise more tokens per second than raw ones."""
    raw, calibrated = replay_pair(overconfident, policy, concurrency)
    gain = throughput_change(calibrated, raw)
    assert gain.value > 0
    assert gain.clearly_positive
    assert calibrated.budget_per_request < raw.budget_per_request


def test_early_stop_can_lose_by_calibration(overconfident: Trace) -> None:
    """An early stop ends at the first tooth; overconfidence jumps it by accident, so honest confidences cost speed."""
    raw, calibrated = replay_pair(overconfident, EarlyStop(), 160, jagged(0.02))
    assert throughput_change(calibrated, raw).clearly_negative
    best = replay_pair(overconfident, UnconstrainedSearch(), 160, jagged(0.02))[1]
    assert best.throughput > raw.throughput  # the remedy is the search on earlier confidences, not overconfidence


@pytest.mark.parametrize(
    "policy", [FixedLength(), UnconstrainedSearch(), EarlyStop(), ConfidenceThreshold(threshold=0.5)]
)
def test_predicted_length_is_realised_after_calibration(overconfident: Trace, policy: Policy) -> None:
    """Predicted τ is within 2 % of the realised one with true temperatures, and above it by more than that without."""
    raw, calibrated = replay_pair(overconfident, policy, 64)
    assert calibrated.predicted_accepted_length == pytest.approx(calibrated.realised_accepted_length, rel=0.02)
    if raw.budget_per_request > 2:
        assert raw.predicted_accepted_length > 1.02 * raw.realised_accepted_length


def test_more_budget_never_accepts_less(overconfident: Trace) -> None:
    """Longer fixed verification raises τ at every step and lowers nothing but speed per step."""
    responses = responses_of(overconfident)
    raw = raw_confidences(responses.rounds)
    lengths = [
        replay_policy(responses, raw, FixedLength(length=k), JAGGED, concurrency=8).realised_accepted_length
        for k in range(6)
    ]
    assert lengths[0] == 1.0
    assert np.all(np.diff(lengths) > 0)


def test_oracle_uses_true_probabilities_where_known(every_anchor: Callable[..., Trace]) -> None:
    """α stands where the prefix was accepted, other confidences elsewhere; no column, no oracle."""
    rounds = every_anchor(prompts=2, anchors=5, temperatures=[1.0, 1.0]).read()
    alpha = np.full((len(rounds), 2), np.nan, np.float32)
    alpha[:, 0] = 0.75
    known = replace(rounds, acceptance_probs=alpha)
    elsewhere = confidences_from("raw", np.full((len(rounds), 2), 0.5))
    oracle = oracle_confidences(known, elsewhere)
    np.testing.assert_array_equal(oracle.conditional, np.tile([0.75, 0.5], (len(rounds), 1)))
    np.testing.assert_array_equal(oracle.survival[:, 1], 0.375)
    with pytest.raises(InsufficientData, match="acceptance_probs"):
        oracle_confidences(rounds, elsewhere)


def test_temperatures_by_fold(every_anchor: Callable[..., Trace]) -> None:
    """Each row takes the temperatures of its own fold."""
    rounds = every_anchor(prompts=2, anchors=4, temperatures=[1.0, 1.0]).read()
    fold = np.arange(len(rounds)) % 2
    mixed = calibrated_confidences(rounds, [[1.0, 2.0], [4.0, 0.5]], fold)
    for number, temperatures in enumerate([[1.0, 2.0], [4.0, 0.5]]):
        whole = calibrated_confidences(rounds, temperatures)
        np.testing.assert_array_equal(mixed.survival[fold == number], whole.survival[fold == number])


def test_recommended_block_is_the_smallest_near_the_best(overconfident: Trace) -> None:
    """γ is the fewest drafts within one paired standard error of the fastest block size, and the choice is lossless."""
    responses = responses_of(overconfident)
    sources = [raw_confidences(responses.rounds), calibrated_confidences(responses.rounds, [1.6] * 5)]
    policies: list[Policy] = [
        FixedLength(), UnconstrainedSearch(), DeepInferVarlen(curve=JAGGED, cost=StepCost())
    ]  # fmt: skip
    simulation = compute_simulation(responses, sources, policies, JAGGED, [8, 128], min_user_speed=150.0)
    for choice in simulation.recommendations:
        rivals = [r for r in simulation.replays if r.concurrency == choice.concurrency and r.policy != "search"]
        assert choice.throughput == max(r.throughput for r in rivals)
        best = max(option.throughput for option in choice.gamma_options)
        assert [option.gamma for option in choice.gamma_options] == [1, 2, 3, 4, 5]
        smaller = [o for o in choice.gamma_options if o.gamma < choice.gamma]
        assert all(o.throughput < best for o in smaller)
    heavy = simulation.recommendations[1]
    assert (heavy.policy, heavy.temperatures) == ("deepinfer", "calibrated")
    assert heavy.calibration_gain is not None
    assert heavy.calibration_gain.clearly_positive
    fast_enough = [r for r in simulation.replays if r.per_user_speed >= 150 and r.policy != "search"]
    assert simulation.best_under_sla is not None
    assert simulation.best_under_sla.throughput == max(r.throughput for r in fast_enough)
    assert simulation.best_under_sla.concurrency == 8
