"""Inputs on which public fitters and recalibrators were wrong, with the right answers; the ids name tool and issue."""

import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dspark_calib.calibration import FitRows, evaluate, fit_calibration, fit_sts
from dspark_calib.calibration.baselines import _fit_isotonic, _fit_platt
from dspark_calib.calibration.decision import decide
from dspark_calib.calibration.file import Calibration
from dspark_calib.calibration.fitting.identifiability import survey_positions
from dspark_calib.calibration.fitting.objective import evaluate_totals
from dspark_calib.calibration.rows.sample import Sample
from dspark_calib.metrics import Estimate
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.trace import Labels, Rounds, Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def drawn(temperature: float, *, prompts: int = 40, each: int = 50, seed: int = 0, mean: float = 0.0) -> Rounds:
    """Rounds of one position whose true temperature is known."""
    return synthetic_rounds(
        np.random.default_rng(seed),
        prompts=prompts,
        rounds_per_prompt=each,
        temperatures=[temperature],
        logit_mean=mean,
        logit_sd=1.5,
    )


def rows_of(rounds: Rounds, view: Any = "cumulative") -> FitRows:
    """Rounds ready to fit on."""
    return FitRows(JudgedTrace(Trace.of(rounds, synthetic_provenance(rounds.gamma))), view)


def sample_of(logits: Any, accepted: Any) -> Sample:
    """Rows of one position as arrays."""
    z = np.asarray(logits, dtype=np.float64)[:, None]
    rows = np.zeros(len(z), np.int32)
    return Sample(
        logits=z,
        accepted=np.asarray(accepted, np.int16),
        observed=np.ones(len(z), np.int16),
        cluster=rows,
        view="cumulative",
    )


def rate(positives: int, n: int = 50) -> list[int]:
    """Labels of n rows."""
    return [1] * positives + [0] * (n - positives)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([0.0, 1e-320, 1e-314, 1.0], id="sklearn 10903, subnormal float64"),
        pytest.param([0.0, 1e-45, 1e-40, 1.0], id="sklearn 17758, subnormal float32"),
    ],
)
def test_isotonic_fit_of_subnormal_logits_is_finite(places: list[float]) -> None:
    """Rates .42, .42, .44, .44 at logits a subnormal apart: finite, monotone, within [.42, .44]."""
    labels = [*rate(21), *rate(21), *rate(22), *rate(22)]
    predict, _ = _fit_isotonic(sample_of(np.repeat(places, 50), labels), 20)
    found = predict(sample_of(places, [0] * 4))[:, 0]
    assert np.isfinite(found).all()
    assert (np.diff(found) >= 0).all()
    assert found.min() >= 0.42 - 1e-12
    assert found.max() <= 0.44 + 1e-12


def test_isotonic_fit_is_clipped_outside_its_range() -> None:
    """sklearn 23134: fitted on 0 … .4, asked at .5 and at -1, it gives the value of the nearest end and no NaN."""
    predict, _ = _fit_isotonic(
        sample_of(np.repeat([0, 0.1, 0.3, 0.4], 50), [*rate(5), *rate(10), *rate(20), *rate(30)]), 20
    )
    found = predict(sample_of([-1.0, 0.0, 0.4, 0.5], [0] * 4))[:, 0]
    assert found == pytest.approx([0.1, 0.1, 0.6, 0.6])


def test_isotonic_fit_pools_ties_before_it_fits() -> None:
    """calikit: one logit with half its labels 1 is one block, whatever the order of rows."""
    for labels in ([0, 0, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0]):
        predict, _ = _fit_isotonic(sample_of([0.5] * 4, labels), 20)
        assert predict(sample_of([0.5], [0]))[:, 0] == pytest.approx([0.5])


def test_platt_fit_of_separable_rows_stays_finite() -> None:
    """robustness_metrics 79: where the likelihood has no maximum the bound still predicts probabilities."""
    predict, _ = _fit_platt(sample_of([-2.0, -1.0, 1.0, 2.0], [0, 0, 1, 1]), 20)
    found = predict(sample_of([-3.0, 0.0, 3.0], [0] * 3))[:, 0]
    assert np.isfinite(found).all()
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("objective", ["ece", "brier", "nll"])
def test_temperature_two_is_found_from_float32_logits(objective: Any) -> None:
    """calibration-framework 61: float32 logits gave T = 1 exactly; 2,000 rows of true T 2 give about 2."""
    rounds = drawn(2.0)
    assert rounds.confidence_logits.dtype == np.float32
    rows = rows_of(rounds, "conditional" if objective == "nll" else "cumulative")
    assert fit_sts(rows, objective=objective, select="paper").temperatures[0] == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize("temperature", [0.2, 0.6, 1.0, 2.5, 6.0])
@pytest.mark.parametrize("mean", [-2.0, 0.0, 2.0])
def test_the_likeliest_temperature_is_that_of_a_converged_fit(temperature: float, mean: float) -> None:
    """robustness_metrics 79, temperature_scaling 20: Newton's few steps reach what scikit-learn reaches in many."""
    rounds = drawn(temperature, seed=3, mean=mean)
    model = LogisticRegression(C=1e12, fit_intercept=False, tol=1e-12, max_iter=10_000)
    model.fit(rounds.confidence_logits.astype(float), rounds.accepted > 0)
    found = survey_positions(rows_of(rounds))[0].likely_temperature
    assert found == pytest.approx(1 / model.coef_[0, 0], rel=1e-3)


@pytest.mark.parametrize("objective", ["ece", "brier", "nll"])
@pytest.mark.parametrize(
    "flip",
    [
        pytest.param(None, id="temperature_scaling 22, unrelated labels"),
        pytest.param(-1, id="autogluon 4396, anti-correlated labels"),
    ],
)
def test_no_objective_marches_off_where_logits_tell_nothing(objective: Any, flip: int | None) -> None:
    """T stays 1 with the reason, positive and finite, where others found 8·10⁶ and -1242."""
    rounds = drawn(1.0, prompts=60)
    z = rounds.confidence_logits
    shuffled = np.random.default_rng(1).permutation(z) if flip is None else -z
    view: Any = "conditional" if objective == "nll" else "cumulative"
    position = fit_sts(rows_of(replace(rounds, confidence_logits=shuffled), view), objective=objective).positions[0]
    assert position.temperature == 1.0
    assert {"kept_at_identity", "unidentified"} <= set(position.flags)


def test_auroc_below_a_half_is_reported() -> None:
    """autogluon 4397: reversed logits keep T = 1, and the ranking says that they are reversed."""
    rounds = drawn(1.0, prompts=60)
    reversed_ = replace(rounds, confidence_logits=-rounds.confidence_logits)
    auroc = evaluate(Trace.of(reversed_, synthetic_provenance(1)), draws=60).groups[0].raw.cumulative[0].auroc
    assert auroc.high is not None
    assert auroc.high < 0.5


def test_two_wrong_certain_rows_move_the_ece_by_no_more_than_their_share() -> None:
    """probmetrics 1.98 → 2.70: an ECE over n rows moves by at most 2/n for each row that is added, at every T."""
    rounds = drawn(2.0)
    n = len(rounds)
    wrong = replace(
        rounds.take(slice(0, 2)),
        confidence_logits=np.array([[60.0], [-60.0]], np.float32),
        accepted=np.array([0, 1], np.int16),
    )
    grid = np.array([0.5, 1.0, 1.5, 2.0, 3.0, 8.0])
    both = replace(
        rounds,
        **{
            name: _joined(getattr(rounds, name), getattr(wrong, name))
            for name in Rounds.__dataclass_fields__
            if getattr(rounds, name) is not None
        },
    )
    before, after = (evaluate_totals(rows_of(r), "ece", grid, 20) for r in (rounds, both))
    assert np.abs(after - before).max() <= 2 * 2 / n


def _joined(one: Any, other: Any) -> Any:
    if isinstance(one, Labels):
        return Labels(codes=np.concatenate([one.codes, other.codes]), names=one.names)
    return np.concatenate([one, other])


@pytest.mark.parametrize(
    ("temperatures", "change", "decision", "said"),
    [
        pytest.param((1.0, 1.0), -0.1, "keep_identity", "all stay at 1", id="nothing was fitted"),
        pytest.param((1.5, 1.0), 0.001, "keep_identity", "help nothing", id="temperature_scaling 29, worse held out"),
        pytest.param((1.5, 1.0), 0.0, "keep_identity", "help nothing", id="temperature_scaling 28, no better"),
        pytest.param((1.5, 1.0), None, "keep_identity", "no position has an ECE", id="nothing to judge by"),
        pytest.param((1.5, 1.0), -0.001, "adopt", "more prompts would settle it", id="perhaps better"),
        pytest.param((1.5, 1.0), -0.1, "adopt", "mean ECE changes by -0.1000", id="better"),
    ],
)
def test_what_is_worse_on_held_out_prompts_is_not_adopted(
    temperatures: tuple[float, ...], change: float | None, decision: str, said: str
) -> None:
    """The decision follows the held-out change and its interval."""
    estimate = Estimate(
        value=change, low=None if change is None else change - 0.01, high=None if change is None else change + 0.01
    )
    held_out: Any = SimpleNamespace(mean_ece_change=estimate, evaluation="out_of_fold")
    decided = decide(Calibration(temperatures=temperatures, held_out=held_out))
    assert decided.decision == decision
    assert said in (decided.reason or "")


@pytest.mark.parametrize("accepted", [0, 1])
def test_a_trace_of_one_round_has_values_and_no_claims(accepted: int) -> None:
    """n = 1: ECE is |a - y|, there is no interval, no AUROC and no temperature, and the file is strict JSON."""
    one = replace(drawn(1.0, prompts=1, each=1), confidence_logits=np.zeros((1, 1), np.float32))
    trace = Trace.of(replace(one, accepted=np.array([accepted], np.int16)), synthetic_provenance(1))
    first = evaluate(trace, draws=60).groups[0].raw.cumulative[0]
    assert (first.ece.value, first.ece.low, first.auroc.value) == (0.5, None, None)
    calibration = fit_calibration(trace)
    assert calibration.temperatures == (1.0,)
    json.dumps(calibration.to_dict(), allow_nan=False)


def test_names_that_spell_nan_are_left_alone() -> None:
    """SACRO-ML 421: a single class is null in strict JSON, and a data set called BaNaNa keeps its name."""
    rounds = replace(drawn(1.0), accepted=np.ones(2000, np.int16), dataset=Labels.constant("BaNaNa Infinity", 2000))
    body = fit_calibration(Trace.of(rounds, synthetic_provenance(1))).to_dict()
    text = json.dumps(body, allow_nan=False)
    assert body["dataset"] == "BaNaNa Infinity"
    assert json.loads(text)["dspark_calib"]["held_out"]["auroc_before"][0]["value"] is None


def test_fits_stay_inside_the_grid_whatever_the_scale_of_logits() -> None:
    """temperature_scaling 20 reached 1,386,304: the search is bounded, and its ends are flagged."""
    rounds = drawn(1.0, prompts=60)
    for scale, end in ((1e-3, 0.125), (1e3, 8.0)):
        scaled = replace(rounds, confidence_logits=(rounds.confidence_logits * scale).astype(np.float32))
        position = fit_sts(rows_of(scaled), select="paper").positions[0]
        assert position.temperature == end
        assert "at_grid_edge" in position.flags
        assert math.isfinite(position.objective_after or math.nan)
