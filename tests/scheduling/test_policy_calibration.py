"""Fitting for the policy that will run: fixed points, held-out prompts, and a shift that is known to be there."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dspark_calib.calibration.file import read_calibration, write_calibration
from dspark_calib.calibration.fitting.sts import fit_sts
from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.errors import CurveError, PolicyError
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.scheduling.calibrated_source import OUT_OF_FOLD, calibrate_trace
from dspark_calib.scheduling.curve import make_curve
from dspark_calib.scheduling.fixed import FixedLength
from dspark_calib.scheduling.policy_calibration import calibrate_for_policy
from dspark_calib.scheduling.policy_calibration_file import calibration_for_policy
from dspark_calib.scheduling.policy_calibration_record import PolicyCalibration
from dspark_calib.scheduling.search import UnconstrainedSearch
from dspark_calib.survival import sigmoid
from dspark_calib.trace import Trace, loop_trace

CURVE = make_curve([1, 8, 64], [200.0, 190.0, 90.0])


@pytest.fixture(scope="module")
def easy_and_hard(every_anchor: Callable[..., Trace]) -> Trace:
    """Stretches of 12 easy anchors whose logits tell the truth, between 12 hard ones whose are 3 times too large.

    A loop that verifies everything jumps over easy stretches; one that verifies a single draft walks through them.
    """
    trace = every_anchor(prompts=200, anchors=96, temperatures=[1.0] * 4, seed=8)
    rounds = trace.read()
    rng, shape = np.random.default_rng(9), (len(rounds), 4)
    easy = ((rounds.anchor - rounds.prompt_length) // 12 % 2 == 0)[:, None]
    logits = np.where(easy, rng.normal(2.0, 1.5, shape), rng.normal(-1.5, 3.0, shape))
    truth = sigmoid(np.where(easy, logits, logits / 3))
    accepted = np.cumprod(rng.random(shape) < truth, axis=1).sum(axis=1)
    changed = replace(
        rounds,
        confidence_logits=logits.astype(np.float32),
        accepted=np.minimum(accepted, rounds.observed).astype(np.int16),
    )
    return Trace.of(changed, trace.provenance)


@pytest.fixture(scope="module")
def for_one_draft(easy_and_hard: Trace) -> PolicyCalibration:
    """Fitted for a policy that verifies one draft."""
    return calibrate_for_policy(easy_and_hard, FixedLength(length=1), CURVE, concurrency=4, select="paper")


def test_shorter_verification_needs_other_temperatures(for_one_draft: PolicyCalibration) -> None:
    """Verifying one draft visits more easy anchors, so its temperatures are closer to 1, and that is found."""
    fitted = for_one_draft
    first, last = fitted.passes[0], fitted.passes[-1]
    assert fitted.outcome == "fixed_point"  # the policy looks at no confidence: its rounds stay the same
    assert first.temperatures[0] > last.temperatures[0] > 1
    assert fitted.shift[0] < 0
    assert fitted.clearly_shifted[0]
    assert fitted.throughput_change.value == 0.0
    assert last.rows_visited > first.rounds_fitted
    assert last.ece[0] is not None
    assert last.ece_of_loop_fit[0] is not None
    assert last.ece_raw[0] is not None
    assert last.ece[0] < last.ece_of_loop_fit[0] < last.ece_raw[0]


def test_the_first_pass_is_the_fit_on_loop_rounds(easy_and_hard: Trace, for_one_draft: PolicyCalibration) -> None:
    """Pass one ships exactly what `fit-sts` finds on the loop rounds of the trace."""
    loop = JudgedTrace(loop_trace(easy_and_hard))
    expected = fit_sts(FitRows(loop, "cumulative"), select="paper")
    assert for_one_draft.passes[0].temperatures == expected.temperatures


def test_full_verification_is_its_own_fixed_point(easy_and_hard: Trace) -> None:
    """A policy that visits the loop rounds moves nothing."""
    fitted = calibrate_for_policy(easy_and_hard, FixedLength(), CURVE, concurrency=3)
    assert fitted.outcome == "fixed_point"
    assert fitted.shift == (0.0,) * 4
    assert not any(fitted.clearly_shifted)
    assert len(fitted.passes) == 2


def test_a_confidence_policy_comes_to_rest(every_anchor: Callable[..., Trace]) -> None:
    """Where anchors do not differ, the second fit stays within the noise of the first, and throughput with it."""
    trace = every_anchor(prompts=80, anchors=60, temperatures=[1.6] * 3, seed=3, mean=0.6)
    fitted = calibrate_for_policy(trace, UnconstrainedSearch(), CURVE, concurrency=16)
    assert fitted.outcome in ("fixed_point", "within_noise")
    assert not fitted.throughput_change.clearly_positive
    assert not fitted.throughput_change.clearly_negative


def test_the_file_holds_prompts_out(easy_and_hard: Trace, for_one_draft: PolicyCalibration, tmp_path: Path) -> None:
    """Written and read back, the temperatures apply out of fold on their own trace."""
    fitted = for_one_draft
    path = write_calibration(tmp_path / "calibration.json", calibration_for_policy(easy_and_hard, fitted))
    calibration = read_calibration(path)
    assert calibration.temperatures == fitted.temperatures
    assert calibration.reason is not None
    assert "fixed:1" in calibration.reason
    source = calibrate_trace(easy_and_hard, easy_and_hard.read(), calibration)
    assert source.evaluation == OUT_OF_FOLD


def test_what_cannot_be_fitted_is_refused(easy_and_hard: Trace) -> None:
    """A loop trace and a load beyond the curve are refused."""
    with pytest.raises(PolicyError, match="--anchors all"):
        calibrate_for_policy(loop_trace(easy_and_hard), FixedLength(length=1), CURVE, concurrency=4)
    with pytest.raises(CurveError, match="beyond the curve"):
        calibrate_for_policy(easy_and_hard, FixedLength(length=1), CURVE, concurrency=65)
