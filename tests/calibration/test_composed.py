"""Cumulative measures of cut rounds against the labels the scheduler hid, and against a slow recomposition."""

from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recomposed import Recomposed, cut_below, recompose

from dspark_calib.calibration import Calibration, evaluate
from dspark_calib.decision.conditions import Conditions
from dspark_calib.decision.gate import compute_gate
from dspark_calib.decision.outcome import Outcome
from dspark_calib.metrics import (
    Estimate,
    PositionScores,
    bootstrap_weights,
    compute_auroc,
    compute_brier,
    compute_corp,
    compute_ece,
    compute_log_loss,
    compute_smooth_ece,
)
from dspark_calib.metrics.acceptance import policy_cut
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.passes import run_pass
from dspark_calib.metrics.sums.composed import ComposedRankPass, ComposePass, observed_rates, sum_composed
from dspark_calib.metrics.sums.composed_rows import RateSets
from dspark_calib.metrics.sums.composed_sums import ComposedRanks, ComposedShape, ComposedSums, SlopeSums
from dspark_calib.metrics.sums.view_passes import sum_view
from dspark_calib.survival import confidence
from dspark_calib.trace import Rounds, Trace, concat_rounds
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

GAMMA = 3
LOADS = {"values": [0.0, 0.6, 0.9], "chance": [0.3, 0.4, 0.3]}  # the server's load moves the threshold


def trace_of(rounds: Rounds) -> Trace:
    """As a trace in memory."""
    return Trace.of(rounds, synthetic_provenance(rounds.gamma))


def drawn(seed: int, prompts: int, each: int, effect: float = 0.0, **names: str) -> Rounds:
    """Return rounds with every label; T = 1.4."""
    return synthetic_rounds(
        np.random.default_rng(seed),
        prompts=prompts,
        rounds_per_prompt=each,
        temperatures=[1.4] * GAMMA,
        logit_mean=1.0,
        prompt_effect_sd=effect,
        **names,
    )


def cut_by_load(full: Rounds, seed: int = 1) -> Rounds:
    """Cut at thresholds that change from round to round, so that labels on the judged range are hidden too."""
    return cut_below(full, np.random.default_rng(seed).choice(LOADS["values"], len(full), p=LOADS["chance"]))


def reference(full: Rounds, k: int, judged: np.ndarray) -> dict[str, float]:
    """Return measures of position k from all labels over the rounds whose confidences lie in judged bins."""
    c = confidence(full.confidence_logits).astype(np.float64)
    bins = np.minimum((np.clip(c, 1e-8, 1 - 1e-8) * 20).astype(int), 19)
    rows = np.all([judged[j][bins[:, j]] for j in range(k + 1)], axis=0)
    p, y = c[rows, : k + 1].prod(axis=1), full.accepted[rows] > k
    log_p = -np.logaddexp(0, -full.confidence_logits[rows, : k + 1].astype(np.float64)).sum(axis=1)
    auroc = compute_auroc(log_p, y).value
    assert auroc is not None
    return {
        "n": len(p),
        "ece": compute_ece(p, y),
        "bias": float(p.mean() - y.mean()),
        "brier": compute_brier(p, y),
        "log_loss": compute_log_loss(log_p, y),
        "auroc": auroc,
        "smooth_ece": compute_smooth_ece(p, y),
        "miscalibration": compute_corp(p, y).miscalibration,
    }


def judged_bins(trace: Trace) -> np.ndarray:
    """Return which bins of c_k hold at least ten judged rows, bool [γ, 20]."""
    counts = sum_view(JudgedTrace(trace), "conditional", None, bins=20)[0].counts
    return np.asarray(counts.sum(axis=(0, -1)) >= 10)


def plain(scores: PositionScores) -> dict[str, float | None]:
    """Return the values of `reference`."""
    names = ("ece", "bias", "brier", "log_loss", "auroc")
    values: dict[str, float | None] = {name: getattr(scores, name).value for name in names}
    corp = None if scores.corp is None else scores.corp.miscalibration
    return {"n": scores.n, **values, "smooth_ece": scores.smooth_ece, "miscalibration": corp}


def test_below_one_threshold_the_measures_are_those_of_all_labels() -> None:
    """A threshold on c_k at the edge of a bin hides no label on the judged range: every measure is exact there."""
    full = drawn(0, prompts=100, each=200)
    cut = trace_of(cut_below(full, 0.6))
    found = evaluate(cut, draws=50).groups[0].raw
    assert found.composed
    for k, scores in enumerate(found.cumulative):
        assert plain(scores) == pytest.approx(reference(full, k, judged_bins(cut)), abs=1e-4)  # ranks are binned
    assert found.cumulative[2].n < 0.6 * len(full)


@pytest.mark.parametrize("effect", [0.0, 0.3])
def test_composed_measures_agree_with_all_labels(effect: float) -> None:
    """A third of the labels hidden, all composed: every measure lies within its sampling error of the full trace's."""
    full = drawn(2, prompts=300, each=200, effect=effect)
    cut = trace_of(cut_by_load(full))
    found = evaluate(cut, draws=200).groups[0].raw
    for k, scores in enumerate(found.cumulative):
        expected = reference(full, k, judged_bins(cut))
        assert scores.n == expected["n"]
        for name in ("ece", "bias", "brier", "log_loss", "auroc"):
            estimate: Estimate = getattr(scores, name)
            assert estimate.value is not None
            assert estimate.se is not None
            assert abs(estimate.value - expected[name]) < 3 * estimate.se, (k, name)
        assert scores.smooth_ece == pytest.approx(expected["smooth_ece"], abs=0.01)
        assert plain(scores)["miscalibration"] == pytest.approx(expected["miscalibration"], abs=0.002)


def test_a_trace_without_cuts_composes_to_itself() -> None:
    """With every label known, the composed sums give the plain view's measures and intervals, digit for digit."""
    full = drawn(4, prompts=40, each=60)
    judged = JudgedTrace(trace_of(full))
    sums, places = sum_view(judged, "cumulative", None, bins=20)
    rates = RateSets(rates=np.full((1, GAMMA, 20), 0.5), set_of=np.zeros(40, np.int32))
    found, found_places = sum_composed(judged, rates, None)
    np.testing.assert_array_equal(found.rows, sums.counts.sum(axis=-1))
    np.testing.assert_array_equal(found.label, sums.counts[..., 1])
    np.testing.assert_array_equal(found.scores, sums.scores)
    for name in ("predicted", "squared_error", "log_loss", "residuals"):
        np.testing.assert_allclose(getattr(found, name), getattr(sums, name), rtol=1e-12)
    np.testing.assert_allclose(found_places.by_cluster, places.overall, rtol=1e-12)
    assert not any(getattr(found.slopes, f.name).any() for f in fields(SlopeSums))


@pytest.fixture(scope="module")
def small() -> tuple[Rounds, int]:
    """8,000 cut rounds of 200 prompts that differ, with 10 bins."""
    return cut_by_load(drawn(3, prompts=200, each=40, effect=0.6)), 10


def test_values_equal_the_slow_recomposition(small: tuple[Rounds, int]) -> None:
    """Row by row in plain Python: the same n, ECE, bias and Brier score; AUROC up to ties in its score bins."""
    cut, bins = small
    slow = recompose(cut, np.ones(len(cut)), bins)
    for scores, other in zip(evaluate(trace_of(cut), bins=bins, draws=0).groups[0].raw.cumulative, slow, strict=True):
        assert other is not None
        assert scores.n == other.n
        for name in ("ece", "bias", "brier"):
            assert getattr(scores, name).value == pytest.approx(getattr(other, name), abs=1e-12)
        assert scores.auroc.value == pytest.approx(other.auroc, abs=1e-4)


def test_replicates_follow_the_slow_recomposition(small: tuple[Rounds, int]) -> None:
    """Prompts weighed anew, rates and labels recomposed from scratch: replicates agree to a quarter of their spread.

    First order leaves out the product of two changes, each about one part in √(judged rows of a bin).
    """
    cut, bins = small
    trace, draws = trace_of(cut), 60
    found = evaluate(trace, bins=bins, draws=draws).groups[0].raw
    judged = JudgedTrace(trace)
    cluster = np.concatenate([batch.cluster for batch in judged.batches()])
    weights = bootstrap_weights(judged.clusters.hashes, range(draws), seed=0)
    slow = [recompose(cut, w[cluster], bins, judged_with=np.ones(len(cut))) for w in weights]

    def by_draw(name: str) -> np.ndarray:
        return np.array([[getattr(at, name) for at in one if isinstance(at, Recomposed)] for one in slow])

    for name in ("ece", "bias", "brier"):
        ours, theirs = getattr(found.draws, name), by_draw(name)
        spread = theirs.std(axis=0)
        assert (np.sqrt(((ours - theirs) ** 2).mean(axis=0)) < 0.25 * spread).all(), name
        assert ours.std(axis=0) == pytest.approx(spread, rel=0.1)


def test_standard_errors_are_those_of_the_slow_influence() -> None:
    """Each prompt weighed 1 + ε in turn, all recomposed: the scatter of the changes is the clustered standard error.

    Nothing is random here, so Brier score and AUROC agree to the ties in the score bins.
    """
    cut, bins, step = cut_by_load(drawn(15, prompts=40, each=40, effect=0.6)), 5, 1e-5
    ones = np.ones(len(cut))
    start = recompose(cut, ones, bins)
    changes: dict[str, list[list[float]]] = {"brier": [], "auroc": []}
    for prompt in range(40):
        weights = ones + step * (cut.prompt_id.codes == prompt)
        moved = recompose(cut, weights, bins, judged_with=ones)
        for name, found in changes.items():
            found.append([(getattr(m, name) - getattr(s, name)) / step for m, s in zip(moved, start, strict=True)])
    for k, scores in enumerate(evaluate(trace_of(cut), bins=bins, draws=0).groups[0].raw.cumulative):
        for name, found in changes.items():
            expected = np.sqrt((np.array(found)[:, k] ** 2).sum() * 40 / 39)
            assert getattr(scores, name).se == pytest.approx(expected, rel=2e-3), (name, k)


def one_batch(cut: Rounds, bins: int, temperatures: list[float]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (slopes, differences) of each kind of sum, when one rate after the other moves by a hundredth."""
    batch = next(JudgedTrace(trace_of(cut)).batches())
    counts = sum_view(JudgedTrace(trace_of(cut)), "conditional", temperatures, bins=bins)[0].counts.sum(axis=0)
    rates = observed_rates(counts)[None]
    rates[0, 1, 0] = 0.0  # a bin in which nothing was ever accepted

    def summed(moved: np.ndarray) -> tuple[ComposedSums, SlopeSums]:
        curves = RateSets(rates=moved, set_of=np.zeros(batch.cluster.max() + 1, np.int32))
        shape = ComposedShape(clusters=int(batch.cluster.max()) + 1, sets=1, gamma=cut.gamma, bins=bins)
        sums = run_pass(ComposePass(curves, temperatures, shape), [batch])
        return sums, sums.slopes

    start, slopes = summed(rates)
    for j, b in np.argwhere(np.isfinite(rates[0])):
        moved = rates.copy()
        moved[0, j, b] += 0.01
        end, _ = summed(moved)
        yield slopes.label[0, :, :, j, b], (end.label - start.label).sum(axis=0) / 0.01
        yield slopes.squared_error[0, :, j, b], (end.squared_error - start.squared_error).sum(axis=0) / 0.01
        yield slopes.log_loss[0, :, j, b], (end.log_loss - start.log_loss).sum(axis=0) / 0.01


def test_slopes_are_the_derivatives_also_at_a_rate_of_zero() -> None:
    """Labels are linear in each single rate, so a finite difference must give the slope exactly."""
    seen = 0.0
    for slope, difference in one_batch(cut_by_load(drawn(5, prompts=30, each=40)), 6, [1.2, 1.0, 0.8]):
        np.testing.assert_allclose(slope, difference, rtol=1e-8, atol=1e-8)
        seen += np.abs(slope).sum()
    assert seen > 100


@given(seed=st.integers(0, 10_000), split=st.integers(0, 120), sets=st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_sums_of_two_parts_add_up_to_those_of_all_rows(seed: int, split: int, sets: int) -> None:
    """merge(A, B) equals all rows, whatever the split, the sets and the curve; counts exactly."""
    rng = np.random.default_rng(seed)
    cut = cut_by_load(drawn(seed, prompts=6, each=20), seed)
    rates = rng.random((sets, GAMMA, 5))
    rates[rng.random(rates.shape) < 0.1] = np.nan
    curves = RateSets(rates=rates, set_of=rng.integers(0, sets, 6).astype(np.int32))
    batch = next(JudgedTrace(trace_of(cut)).batches())
    composing = ComposePass(curves, None, ComposedShape(clusters=6, sets=sets, gamma=GAMMA, bins=5))
    whole, merged, rest = (run_pass(composing, [batch.take(slice(*r))]) for r in ((0, 120), (0, split), (split, 120)))
    composing.merge(merged, rest)
    np.testing.assert_array_equal(merged.rows, whole.rows)
    for name in ("predicted", "label", "squared_error", "log_loss", "scores", "residuals"):
        np.testing.assert_allclose(getattr(merged, name), getattr(whole, name), rtol=1e-10, atol=1e-12)
    for field in fields(SlopeSums):
        ours, theirs = getattr(merged.slopes, field.name), getattr(whole.slopes, field.name)
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_threads_change_nothing() -> None:
    """Batches are added in row order: one thread and three give the same sums, bit for bit."""
    batch = next(JudgedTrace(trace_of(cut_by_load(drawn(6, prompts=50, each=60)))).batches())
    batches = [batch.take(slice(start, start + 500)) for start in range(0, 3000, 500)]
    curves = RateSets(rates=np.full((1, GAMMA, 20), 0.7), set_of=np.zeros(50, np.int32))
    shape = ComposedShape(clusters=50, sets=1, gamma=GAMMA, bins=20)
    one, three = (run_pass(ComposePass(curves, None, shape), batches, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.label, three.label)
    np.testing.assert_array_equal(one.slopes.label, three.slopes.label)
    ranks = ComposedRankPass(curves, None, shape, ComposedRanks(one))
    one_places, three_places = (run_pass(ranks, batches, threads) for threads in (1, 3))
    np.testing.assert_array_equal(one_places.slopes, three_places.slopes)


def test_groups_are_composed_with_their_own_curve() -> None:
    """A group scored among others has the numbers it has alone, and "all" has those of the trace without groups."""
    parts = [cut_by_load(drawn(7, 40, 60, domain="code")), cut_by_load(drawn(8, 40, 60, effect=0.8, domain="chat"))]
    renamed = replace(parts[1], prompt_id=replace(parts[1].prompt_id, names=tuple(f"q{i}" for i in range(40))))
    both = trace_of(concat_rounds([parts[0], renamed]))
    whole, code, chat = evaluate(both, by="domain", draws=60).groups
    for found, alone in ((code, trace_of(parts[0])), (chat, trace_of(renamed)), (whole, both)):
        expected = evaluate(alone, draws=60).groups[0].raw
        for ours, theirs in zip(found.raw.cumulative, expected.cumulative, strict=True):
            assert plain(ours) == pytest.approx(plain(theirs), abs=1e-12)
            assert ours.ece.high == pytest.approx(theirs.ece.high, abs=1e-12)
            assert ours.auroc.se == pytest.approx(theirs.auroc.se, abs=1e-12)


def test_before_and_after_are_paired() -> None:
    """Composed changes have intervals, narrower than those of either side; the right temperatures help."""
    trace = trace_of(cut_by_load(drawn(9, prompts=120, each=100, effect=0.3)))
    group = evaluate(trace, Calibration(temperatures=(1.4,) * GAMMA), draws=200).groups[0]
    assert group.change is not None
    assert group.calibrated is not None
    for k in range(GAMMA):
        change, before = group.change.bias[k], group.raw.cumulative[k].bias
        assert change.se is not None
        assert before.se is not None
        assert change.se < before.se
        assert group.change.brier[k].high is not None
        assert group.change.brier[k].high < 0
    assert group.change.mean_ece.high is not None
    assert group.change.mean_ece.high < 0
    assert group.raw.mean_ece_floor is not None


def test_a_gate_judges_cut_rounds() -> None:
    """The right temperatures pass every position of a cut trace, raw confidences fail, and the cut is told."""
    trace = trace_of(cut_by_load(drawn(16, prompts=150, each=60)))
    asked = Conditions(max_ece=0.04, max_bias=0.03, min_auroc=0.6)
    passed = compute_gate(evaluate(trace, Calibration(temperatures=(1.4,) * GAMMA), draws=200), asked)
    assert passed.outcome is Outcome.PASS
    assert any("cut by a scheduler" in warning for warning in passed.warnings)
    failed = compute_gate(evaluate(trace, draws=200), Conditions(max_ece=0.02))
    assert failed.outcome is Outcome.FAIL


def test_a_gate_leaves_open_what_was_not_judged() -> None:
    """No round was sent past position 2: position 3 can neither pass nor fail, and the check says why."""
    full = drawn(11, prompts=40, each=50)
    sent = np.full(len(full), 2, np.int16)
    cut = replace(full, observed=sent, verified=sent, accepted=np.minimum(full.accepted, sent))
    last = compute_gate(evaluate(trace_of(cut), draws=50), Conditions(max_ece=0.5)).checks[2]
    assert last.undefined
    assert "not judged" in last.reason


def test_a_block_that_its_text_ended_is_left_out_behind_the_end() -> None:
    """An accepted EOS is not censoring: no label is composed for drafts that no policy would have sent."""
    full = drawn(10, prompts=30, each=50)
    cut = cut_by_load(full)
    ended = np.arange(len(full)) % 5 == 0
    observed = np.where(ended, 1, cut.observed).astype(np.int16)
    # Sent in full and accepted up to its last label, where the text ended.
    verified = np.where(ended, GAMMA, cut.verified).astype(np.int16)
    accepted = np.where(ended, 1, np.minimum(cut.accepted, observed)).astype(np.int16)
    anchor = np.full(len(full), -1, np.int32)
    mixed = replace(cut, observed=observed, verified=verified, accepted=accepted, anchor=anchor)
    assert not policy_cut(mixed)[ended].any()
    found = evaluate(trace_of(mixed), bins=4, draws=0).groups[0].raw.cumulative  # every bin was judged
    assert found[0].n == len(full)
    assert found[1].n == (~ended).sum()


def scores_of(cut: Rounds) -> tuple[PositionScores, ...]:
    """Return the composed scores with 50 draws."""
    return evaluate(trace_of(cut), draws=50).groups[0].raw.cumulative


def numbers(scores: PositionScores) -> list[float]:
    """Return every number of a position that is not None."""
    estimates = (scores.ece, scores.bias, scores.brier, scores.log_loss, scores.auroc)
    ends = [x for e in estimates for x in (e.value, e.se, e.low, e.high)]
    others = [scores.ece_floor, scores.ece_floor_high, scores.ece_squared_debiased, scores.smooth_ece]
    return [x for x in (*ends, *others) if x is not None]


def test_where_nothing_was_judged_there_is_null_and_the_reason() -> None:
    """Every round cut before position 3: no number there, never 0."""
    full = drawn(11, prompts=40, each=50)
    sent = np.full(len(full), 2, np.int16)
    last = scores_of(replace(full, observed=sent, verified=sent, accepted=np.minimum(full.accepted, sent)))[2]
    assert (last.n, last.missing) == (0, "not judged")
    assert numbers(last) == []
    assert last.corp is None
    assert last.predicted_mean is None
    assert last.observed_mean is None
    assert all(v is None for v in last.bins.observed)


def test_a_rate_of_zero_composes_to_zero_with_intervals() -> None:
    """Draft 2 never accepted where judged: hidden labels are 0, a single class, and every number is finite."""
    full = drawn(12, prompts=40, each=100)
    cut = cut_by_load(replace(full, accepted=np.minimum(full.accepted, 1)))
    first, second, third = scores_of(cut)
    assert first.missing is None
    assert (second.positives, second.missing) == (0, "single class")
    assert second.auroc.value is None
    assert second.bias.low is not None
    assert third.missing == "not judged"  # nobody got there
    assert np.isfinite(numbers(first) + numbers(second)).all()


def test_one_prompt_has_values_and_no_interval() -> None:
    """One cluster says nothing of its own scatter."""
    for scores in scores_of(cut_by_load(drawn(13, prompts=1, each=500))):
        assert scores.missing == "one prompt"
        assert scores.ece.value is not None
        assert scores.brier.value is not None
        estimates = (scores.ece, scores.bias, scores.brier, scores.log_loss, scores.auroc)
        assert all(e.low is None for e in estimates)
        assert scores.ece_floor is None
        assert scores.ece_at_floor is None
        assert scores.ece_squared_debiased is None


def test_saturated_logits_stay_finite() -> None:
    """Logits of ± 100 among the hidden drafts: log losses come from log-survival and do not saturate."""
    full = drawn(14, prompts=30, each=60)
    logits = full.confidence_logits.copy()
    logits[::7, 1], logits[3::7, 2] = 100.0, -100.0
    for scores in scores_of(cut_by_load(replace(full, confidence_logits=logits))):
        assert np.isfinite(numbers(scores)).all()
