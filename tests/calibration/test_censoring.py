"""Rounds cut by a threshold on c_k, as a production scheduler does, against the same rounds in full."""

from dataclasses import replace

import numpy as np
import pytest

from dspark_calib.calibration import FitRows, evaluate, fit_calibration, fit_sts
from dspark_calib.calibration.evaluate import Evaluation
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.survival import confidence
from dspark_calib.trace import Rounds, Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

GAMMA, TRUE_T, THRESHOLD = 4, 1.5, 0.6


@pytest.fixture(scope="module")
def full() -> Rounds:
    """60,000 rounds with every label."""
    return synthetic_rounds(
        np.random.default_rng(0), prompts=200, rounds_per_prompt=300, temperatures=[TRUE_T] * GAMMA, logit_mean=1.0
    )


@pytest.fixture(scope="module")
def cut(full: Rounds) -> Rounds:
    """The same, where verification stops before the first c_k below the threshold (never before draft 1)."""
    below = confidence(full.confidence_logits) < THRESHOLD
    below[:, 0] = False
    sent = np.where(below.any(axis=1), below.argmax(axis=1), GAMMA).astype(np.int16)
    return replace(full, observed=sent, verified=sent, accepted=np.minimum(full.accepted, sent))


def trace_of(rounds: Rounds) -> Trace:
    """As a trace in memory."""
    return Trace.of(rounds, synthetic_provenance(GAMMA))


@pytest.fixture(scope="module")
def whole_scores(full: Rounds) -> Evaluation:
    """Scores of the full trace."""
    return evaluate(trace_of(full), draws=50)


@pytest.fixture(scope="module")
def cut_scores(cut: Rounds) -> Evaluation:
    """Scores of the cut trace."""
    return evaluate(trace_of(cut), draws=50)


def test_censoring_is_counted_and_said(cut: Rounds, cut_scores: Evaluation) -> None:
    """Every cut round is counted, and a warning says what the numbers then mean."""
    assert cut_scores.censored == int((cut.observed < GAMMA).sum())
    assert any("cut by a scheduler" in said for said in cut_scores.warnings)


def test_conditional_reliability_above_the_threshold_agrees(whole_scores: Evaluation, cut_scores: Evaluation) -> None:
    """Per bin of c_k above the threshold, observed acceptance of judged drafts is that of the full trace."""
    for k in range(1, GAMMA):
        whole = whole_scores.groups[0].raw.conditional[k].bins
        judged = cut_scores.groups[0].raw.conditional[k].bins
        for b in range(int(THRESHOLD * 20) + 1, 20):
            if judged.n[b] > 300:
                se = 0.5 / np.sqrt(float(judged.n[b]))
                assert abs(judged.observed_sum[b] / judged.n[b] - whole.observed_sum[b] / whole.n[b]) < 4 * se


def test_bins_below_the_threshold_are_null_not_zero(cut_scores: Evaluation) -> None:
    """Nothing was judged below the threshold at positions 2 and on: no number there."""
    bins = cut_scores.groups[0].raw.conditional[2].bins
    assert bins.n[: int(THRESHOLD * 20)].sum() == 0
    assert all(v is None for v in bins.observed[: int(THRESHOLD * 20)])


def test_temperatures_of_the_conditional_view_agree_and_naive_ones_do_not(full: Rounds, cut: Rounds) -> None:
    """Conditional: cut = full on the judged range ≈ 1.5. Marginal labels are off; zeros in their place are worse."""
    on_range = replace(full, observed=cut.observed, accepted=np.minimum(full.accepted, cut.observed))
    zeros = replace(full, accepted=cut.accepted)  # unknown labels taken for rejections

    def fitted(rounds: Rounds, view: str) -> np.ndarray:
        rows = FitRows(JudgedTrace(trace_of(rounds)), "conditional" if view == "conditional" else "cumulative")
        return np.array(fit_sts(rows, select="paper").temperatures)

    conditional = fitted(cut, "conditional")
    np.testing.assert_allclose(conditional, fitted(on_range, "conditional"))
    np.testing.assert_allclose(conditional, TRUE_T, atol=0.2)
    error = {
        "conditional": np.abs(conditional - TRUE_T)[1:].mean(),
        "marginal": np.abs(fitted(cut, "cumulative") - TRUE_T)[1:].mean(),
        "zeros": np.abs(fitted(zeros, "cumulative") - TRUE_T)[1:].mean(),
    }
    assert error["conditional"] < error["marginal"] < error["zeros"]


def test_composed_survival_agrees_where_everything_was_judged(whole_scores: Evaluation, cut_scores: Evaluation) -> None:
    """Cumulative measures are composed: the predicted and observed means per bin follow the full trace's."""
    raw = cut_scores.groups[0].raw
    assert raw.composed
    first = raw.cumulative[0]
    assert first.ece.value == pytest.approx(whole_scores.groups[0].raw.cumulative[0].ece.value, abs=0.01)
    # On the judged range c_2 ≥ .6, so a_2 in the top bins is made of judged confidences alone.
    composed, whole = raw.cumulative[1].bins, whole_scores.groups[0].raw.cumulative[1].bins
    for b in range(14, 20):
        assert composed.observed_sum[b] / composed.n[b] == pytest.approx(whole.observed_sum[b] / whole.n[b], abs=0.03)
    assert raw.cumulative[3].n < 0.4 * whole_scores.groups[0].raw.cumulative[3].n  # rounds on the judged range


def test_fit_of_an_accepted_censored_trace_says_which_view_it_took(cut: Rounds) -> None:
    """fit-sts on a cut trace, accepted by name, fits the conditional view and records it."""
    rows = cut.take(slice(0, 12_000))
    found = fit_calibration(trace_of(rows), accept=("censored_rounds",))
    assert found.fit is not None
    assert found.fit.view == "conditional"
    assert found.accepted == ("censored_rounds",)
