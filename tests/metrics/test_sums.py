"""The accumulator: any split of the rows, any order, gives the sums of all rows, and the measures of plain arrays."""

from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from dspark_calib.calibration import Calibration, evaluate
from dspark_calib.metrics import (
    compute_brier,
    compute_corp,
    compute_ece,
    compute_log_loss,
    compute_noise_floor,
    compute_reliability,
    compute_smooth_ece,
)
from dspark_calib.metrics.acceptance import AcceptanceSums, round_facts
from dspark_calib.metrics.bootstrap import bootstrap_weights, cluster_hashes
from dspark_calib.metrics.ece import compute_squared_error_debiased
from dspark_calib.metrics.rows.judged_rows import JudgedBatch
from dspark_calib.metrics.rows.passes import run_pass
from dspark_calib.metrics.sums.placements import PlacementTables
from dspark_calib.metrics.sums.view_passes import RankPass, ViewPass
from dspark_calib.metrics.sums.view_sums import ViewSums
from dspark_calib.survival import confidence, log_survival, prefix_survival
from dspark_calib.trace import Labels, Trace, concat_rounds
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

GAMMA = 3


def small_batch(seed: int, rows: int) -> JudgedBatch:
    """Random rounds over five clusters with some labels unobserved."""
    rng = np.random.default_rng(seed)
    observed = rng.integers(0, GAMMA + 1, rows).astype(np.int16)
    return JudgedBatch(
        logits=rng.normal(1, 2, (rows, GAMMA)).astype(np.float32),
        accepted=np.minimum(observed, rng.integers(0, GAMMA + 1, rows)).astype(np.int16),
        observed=observed,
        cluster=rng.integers(0, 5, rows).astype(np.int32),
        cut=np.zeros(rows, bool),
    )


def sums_of(batches: Any, view: Any, group: Any) -> Any:
    """Accumulate batches one after the other."""
    groups = int(group.max()) + 1
    return run_pass(ViewPass(view=view, temperatures=None, group=group, groups=groups, gamma=GAMMA, bins=20), batches)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    view=st.sampled_from(["cumulative", "conditional"]),
    order=st.randoms(use_true_random=False),
)
def test_any_split_in_any_order_gives_the_same_sums(seed: int, cuts: Any, view: Any, order: Any) -> None:
    """merge(A, B) equals all rows: counts exactly, sums to 1e-12, placements too."""
    batch, group = small_batch(seed, 60), np.array([0, 1, 0, 1, 1], dtype=np.int32)
    whole = sums_of([batch], view, group)
    edges = [0, *sorted(cuts), 60]
    parts = [sums_of([batch.take(slice(a, b))], view, group) for a, b in pairwise(edges)]
    order.shuffle(parts)
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(part)
    for field in fields(ViewSums):
        np.testing.assert_allclose(getattr(merged, field.name), getattr(whole, field.name), rtol=1e-12, atol=1e-12)
    ranks = RankPass(view=view, temperatures=None, tables=PlacementTables(whole, group), clusters=5)
    everything, first, second = (
        run_pass(ranks, [batch.take(rows)]) for rows in (slice(0, 60), slice(0, 23), slice(23, 60))
    )
    first.merge(second)
    np.testing.assert_allclose(first.overall, everything.overall, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(first.own, everything.own, rtol=1e-12, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), cut=st.integers(1, 79))
def test_acceptance_sums_add_up(seed: int, cut: Any) -> None:
    """Acceptance counts of two parts add up to those of all rows."""
    rounds = synthetic_rounds(np.random.default_rng(seed), prompts=4, rounds_per_prompt=20, temperatures=[1.2] * 4)
    cluster = rounds.prompt_id.codes
    whole = AcceptanceSums.of([round_facts(rounds, cluster)], 4, 4)
    parts = [
        AcceptanceSums.of([round_facts(rounds.take(rows), cluster[rows])], 4, 4)
        for rows in (slice(0, cut), slice(cut, 80))
    ]
    merged = parts[1] + parts[0]
    for name in AcceptanceSums.__slots__:
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name))


def test_prefix_and_conditional_acceptance_of_known_lengths() -> None:
    """Accepted 3, 0, 7, 5 of γ = 7: conditional acceptance 3/4, 3/3, 3/3, 2/3, 2/2, 1/2, 1/1."""
    rounds = synthetic_rounds(np.random.default_rng(0), prompts=4, rounds_per_prompt=1, temperatures=[1.0] * 7)
    rounds = replace(rounds, accepted=np.array([3, 0, 7, 5], np.int16), response_length=np.full(4, 100, np.int32))
    found = evaluate(Trace.of(rounds, synthetic_provenance(7)), draws=50).groups[0].acceptance
    assert [e.value for e in found.conditional] == pytest.approx([3 / 4, 1, 1, 2 / 3, 1, 1 / 2, 1])
    assert [e.value for e in found.prefix] == pytest.approx([3 / 4, 3 / 4, 3 / 4, 2 / 4, 2 / 4, 1 / 4, 1 / 4])
    assert found.accepted_length.value == pytest.approx((3 + 0 + 7 + 5) / 4 + 1)
    assert found.lengths == (1, 0, 0, 1, 0, 1, 0, 1)


@pytest.mark.parametrize(
    ("ending", "accepted", "observed", "tokens", "counts"),
    [
        ("eos", 2, 2, 2, 1),  # the accepted EOS adds no bonus token
        ("eos", 1, 4, 2, 1),  # rejected before EOS: one draft and the corrected token
        ("length", 2, 2, 0, 0),  # cut by the length limit: left out of τ
        ("length", 1, 2, 0, 0),
    ],
)
def test_examples_of_the_design_for_accepted_length(
    ending: Any, accepted: Any, observed: Any, tokens: Any, counts: Any
) -> None:
    """The four end-of-response examples with γ = 4: what each adds to τ, and none of them is censoring."""
    rounds = synthetic_rounds(np.random.default_rng(0), prompts=1, rounds_per_prompt=1, temperatures=[1.0] * 4)
    one = np.ones(1, np.int16)
    rounds = replace(
        rounds,
        ending=Labels.constant(ending, 1),
        accepted=one * accepted,
        observed=one * observed,
        response_length=np.full(1, 10, np.int32),
        anchor=np.full(1, 32 + 10 - 1 - 2, np.int32),  # two tokens lie after the anchor
    )
    facts = round_facts(rounds, np.zeros(1, np.int32))
    assert (facts.tokens[0], facts.steps[0]) == (tokens, counts)
    assert facts.cut[0] == 0


def test_measures_of_a_trace_equal_those_of_its_arrays() -> None:
    """Streamed ECE, Brier and smooth ECE equal the array functions; AUROC equals scikit-learn to 2e-5."""
    rounds = synthetic_rounds(
        np.random.default_rng(4), prompts=50, rounds_per_prompt=60, temperatures=[1.5, 1.2, 0.8], prompt_effect_sd=0.5
    )
    scores = evaluate(Trace.of(rounds, synthetic_provenance(3)), draws=50).groups[0].raw
    a = prefix_survival(rounds.confidence_logits)
    s = log_survival(rounds.confidence_logits)
    for k, found in enumerate(scores.cumulative):
        y = rounds.accepted > k
        assert found.ece.value == pytest.approx(compute_ece(a[:, k], y), abs=1e-12)
        assert found.brier.value == pytest.approx(compute_brier(a[:, k], y), abs=1e-12)
        assert found.smooth_ece == pytest.approx(compute_smooth_ece(a[:, k], y), abs=1e-9)
        assert found.auroc.value == pytest.approx(roc_auc_score(y, s[:, k]), abs=2e-5)
        assert found.n == 3000
        assert found.log_loss.value == pytest.approx(compute_log_loss(s[:, k], y), abs=1e-12)
        assert found.bias.value == pytest.approx((a[:, k] - y).mean(), abs=1e-12)
        debiased = compute_squared_error_debiased(compute_reliability(a[:, k], y))
        assert found.ece_squared_debiased == pytest.approx(debiased, abs=1e-12)
        corp = compute_corp(a[:, k], y)  # of distinct values; the trace's cells are .2 % of odds wide
        for part in ("miscalibration", "discrimination", "uncertainty"):
            assert getattr(found.corp, part) == pytest.approx(getattr(corp, part), abs=5e-4)
        judged = rounds.accepted >= k
        c, label = confidence(rounds.confidence_logits)[judged, k], y[judged]
        assert scores.conditional[k].ece.value == pytest.approx(compute_ece(c, label), abs=1e-12)
        assert scores.conditional[k].brier.value == pytest.approx(compute_brier(c, label), abs=1e-12)
        oracle = roc_auc_score(y[judged], rounds.confidence_logits[judged, k])
        assert scores.conditional[k].auroc.value == pytest.approx(oracle, abs=2e-5)


def test_intervals_of_ece_are_basic_and_those_of_bias_percentile() -> None:
    """From the same draws: 2v - q for ECE, q for bias; the ECE of T = 1.5 is far above its floor."""
    rounds = synthetic_rounds(np.random.default_rng(4), prompts=80, rounds_per_prompt=40, temperatures=[1.8])
    scores = evaluate(Trace.of(rounds, synthetic_provenance(1)), draws=200).groups[0].raw
    first = scores.cumulative[0]
    assert first.ece_at_floor is False
    low, high = np.quantile(scores.draws.ece[:, 0], [0.025, 0.975])
    value = first.ece.value or 0
    assert (first.ece.low, first.ece.high) == pytest.approx((2 * value - high, 2 * value - low))
    assert (first.bias.low, first.bias.high) == pytest.approx(np.quantile(scores.draws.bias[:, 0], [0.025, 0.975]))


def test_the_noise_floor_knows_that_rounds_of_a_prompt_are_alike() -> None:
    """Each prompt one round four times: the floor is that of independent rounds times √4."""
    once = synthetic_rounds(np.random.default_rng(5), prompts=3000, rounds_per_prompt=1, temperatures=[1.0])
    found = evaluate(Trace.of(once.take(np.repeat(np.arange(3000), 4)), synthetic_provenance(1)), draws=50)
    p = confidence(once.confidence_logits)[:, 0]
    independent = compute_noise_floor(compute_reliability(np.repeat(p, 4), np.repeat(once.accepted, 4)))
    assert found.groups[0].raw.cumulative[0].ece_floor == pytest.approx(2 * (independent or 0), rel=0.05)


def test_before_and_after_are_paired_on_the_same_draws() -> None:
    """The identity changes nothing in any draw; T near 1 little, with a far smaller error than either side's."""
    rounds = synthetic_rounds(
        np.random.default_rng(6), prompts=60, rounds_per_prompt=40, temperatures=[1.5] * 2, prompt_effect_sd=0.5
    )
    trace = Trace.of(rounds, synthetic_provenance(2))
    same = evaluate(trace, Calibration(temperatures=(1.0, 1.0)), draws=100).groups[0].change
    near = evaluate(trace, Calibration(temperatures=(1.02, 1.0)), draws=100).groups[0]
    assert same is not None
    assert near.change is not None
    for measure in (*same.ece, *same.brier, *same.bias, same.mean_ece):
        assert (measure.value, measure.se, measure.low, measure.high) == (0, 0, 0, 0)
    assert 0 < (near.change.ece[0].se or 0) < 0.2 * (near.raw.cumulative[0].ece.se or 0)


def test_measures_equal_deepspecs_float32_sigmoid() -> None:
    """From logits, DeepSpec takes σ in float32: ECE, Brier and means agree to 1e-6 (no row sits at a bin edge)."""
    rounds = synthetic_rounds(np.random.default_rng(8), prompts=20, rounds_per_prompt=100, temperatures=[1.3] * 4)
    c = (1 / (1 + np.exp(-rounds.confidence_logits))).astype(np.float32).astype(np.float64)
    a = np.cumprod(c, axis=1)
    scores = evaluate(Trace.of(rounds, synthetic_provenance(4)), draws=50).groups[0].raw
    for k, found in enumerate(scores.cumulative):
        y = rounds.accepted > k
        assert found.ece.value == pytest.approx(compute_ece(a[:, k], y), abs=1e-6)
        assert found.brier.value == pytest.approx(compute_brier(a[:, k], y), abs=1e-6)
        assert found.predicted_mean == pytest.approx(a[:, k].mean(), abs=1e-6)


def test_unobserved_positions_are_not_rejections() -> None:
    """Past an accepted EOS nothing is counted: not in n, not in the means."""
    rounds = synthetic_rounds(np.random.default_rng(5), prompts=40, rounds_per_prompt=10, temperatures=[1.0] * 3)
    ended = np.arange(400) % 10 == 9
    accepted = np.where(ended, 1, rounds.accepted).astype(np.int16)
    rounds = replace(
        rounds,
        accepted=accepted,
        observed=np.where(ended, 1, 3).astype(np.int16),
        response_length=np.full(400, 11, np.int32),
        anchor=np.where(ended, 41, 32).astype(np.int32),
    )
    found = evaluate(Trace.of(rounds, synthetic_provenance(3)), draws=50)
    second = found.groups[0].raw.cumulative[1]
    assert found.censored == 0
    assert second.n == 360
    assert second.observed_mean == pytest.approx((accepted[~ended] >= 2).mean())


def test_groups_are_scored_as_traces_of_their_own() -> None:
    """Scores of a domain equal those of a trace that holds only that domain, standard errors included."""
    rng = np.random.default_rng(6)
    parts = [
        synthetic_rounds(
            rng, prompts=30, rounds_per_prompt=20, temperatures=[t] * 2, first_prompt=30 * i, domain=d, dataset=d
        )
        for i, (d, t) in enumerate((("math", 1.5), ("chat", 0.8)))
    ]
    whole = evaluate(Trace.of(concat_rounds(parts), synthetic_provenance(2)), by="domain", draws=80)
    assert [g.name for g in whole.groups] == ["all", "math", "chat"]
    for part, group in zip(parts, whole.groups[1:], strict=True):
        alone = evaluate(Trace.of(part, synthetic_provenance(2)), draws=80).groups[0]
        for mine, theirs in zip(group.raw.cumulative, alone.raw.cumulative, strict=True):
            assert mine.ece.value == pytest.approx(theirs.ece.value, abs=1e-12)
            assert mine.ece.low == pytest.approx(theirs.ece.low, abs=1e-12)
            assert mine.auroc.se == pytest.approx(theirs.auroc.se, abs=1e-9)


def test_weights_depend_on_the_prompt_and_not_on_its_place() -> None:
    """Bootstrap weights follow the prompt into another trace, so that differences are paired."""
    keys = [("set", str(i)) for i in range(50)]
    weights = bootstrap_weights(cluster_hashes(keys), range(20), seed=3)
    shuffled = bootstrap_weights(cluster_hashes(keys[::-1]), range(20), seed=3)
    np.testing.assert_array_equal(weights, shuffled[:, ::-1])
    assert not np.array_equal(weights, bootstrap_weights(cluster_hashes(keys), range(20), seed=4))


def test_weights_are_poisson() -> None:
    """Mean 1 and variance 1; a cluster drawn twice counts twice."""
    weights = bootstrap_weights(cluster_hashes([("s", str(i)) for i in range(2000)]), range(100), seed=0)
    assert weights.mean() == pytest.approx(1, abs=0.01)
    assert weights.var() == pytest.approx(1, abs=0.02)
    assert set(np.unique(weights)) >= {0.0, 1.0, 2.0, 3.0}


def test_without_prompt_ids_blocks_of_rounds_stand_in_and_say_so() -> None:
    """No prompt ids: 250 rounds make three clusters, and the evaluation names what its intervals rest on."""
    rounds = synthetic_rounds(np.random.default_rng(7), prompts=5, rounds_per_prompt=50, temperatures=[1.0] * 2)
    rounds = replace(rounds, prompt_id=Labels.constant(None, 250))
    found = evaluate(Trace.of(rounds, synthetic_provenance(2)), draws=50)
    assert found.clusters == "blocks of 100 rounds"
    assert found.groups[0].prompts == 3
    assert any("not on prompts" in said for said in found.warnings)


def test_prompts_that_were_hashed_are_said() -> None:
    """A trace of more than 50,000 prompts: the evaluation names what its intervals rest on."""
    rounds = synthetic_rounds(np.random.default_rng(7), prompts=40, rounds_per_prompt=5, temperatures=[1.0] * 2)
    provenance = synthetic_provenance(2).with_counts(200, 60_000)
    found = evaluate(Trace(provenance=provenance, sources=(rounds,)), draws=50)
    assert found.clusters == "prompts hashed to 50,000 clusters"
    assert "intervals rest on prompts hashed to 50,000 clusters, not on prompts" in found.warnings


def test_one_prompt_has_values_and_no_intervals() -> None:
    """A single prompt gives point values, no interval, and says why."""
    rounds = synthetic_rounds(np.random.default_rng(7), prompts=1, rounds_per_prompt=200, temperatures=[1.5] * 2)
    found = evaluate(Trace.of(rounds, synthetic_provenance(2)), draws=50).groups[0].raw.cumulative[0]
    assert found.ece.value is not None
    assert found.ece.low is None
    assert found.missing == "one prompt"


def test_a_position_nobody_reached_is_absent_not_zero() -> None:
    """No labels at position 2: every measure there is None."""
    rounds = synthetic_rounds(np.random.default_rng(7), prompts=40, rounds_per_prompt=5, temperatures=[1.0] * 2)
    one = np.ones(200, np.int16)
    rounds = replace(rounds, accepted=np.minimum(rounds.accepted, 1).astype(np.int16), observed=one)
    second = evaluate(Trace.of(rounds, synthetic_provenance(2)), draws=50).groups[0].raw.cumulative[1]
    assert second.missing is not None
    assert second.ece.value is None
    assert second.predicted_mean is None


@pytest.mark.parametrize("accepted", [0, 2])
def test_single_class_has_ece_and_no_auroc(accepted: Any) -> None:
    """All accepted or all rejected: ECE exists, AUROC is None with the reason."""
    rounds = synthetic_rounds(np.random.default_rng(7), prompts=40, rounds_per_prompt=5, temperatures=[1.0] * 2)
    rounds = replace(rounds, accepted=np.full(200, accepted, np.int16))
    first = evaluate(Trace.of(rounds, synthetic_provenance(2)), draws=50).groups[0].raw.cumulative[0]
    assert first.ece.value is not None
    assert first.auroc.value is None
    assert first.missing == "single class"


def test_constant_data_has_an_interval_of_no_width() -> None:
    """Identical prompts: every replicate equals the estimate, and nothing is NaN."""
    rounds = synthetic_rounds(np.random.default_rng(7), prompts=40, rounds_per_prompt=2, temperatures=[1.0])
    rounds = replace(
        rounds,
        confidence_logits=np.zeros((80, 1), np.float32),
        accepted=np.tile(np.array([0, 1], np.int16), 40),
    )
    first = evaluate(Trace.of(rounds, synthetic_provenance(1)), draws=100).groups[0].raw.cumulative[0]
    assert (first.bias.low, first.bias.high) == pytest.approx((0, 0))
    assert first.ece.value == pytest.approx(0)
