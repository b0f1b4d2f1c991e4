"""What drift concludes from traces whose difference is known, and what it advises."""

import json

import numpy as np
import pytest

from dspark_calib.calibration import Calibration
from dspark_calib.decision.advice import Action
from dspark_calib.decision.drift import Drift, compute_drift
from dspark_calib.decision.outcome import Outcome
from dspark_calib.errors import IncompatibleTraces
from dspark_calib.trace import Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def trace(
    seed: int, *, temperature: float = 1.0, mean: float = 1.7, prompts: int = 150, sd: float = 1.7, gamma: int = 3
) -> Trace:
    """Return a trace that needs this temperature at every position."""
    rounds = synthetic_rounds(
        np.random.default_rng(seed),
        prompts=prompts,
        rounds_per_prompt=30,
        temperatures=np.full(gamma, temperature),
        logit_mean=mean,
        logit_sd=sd,
        prompt_effect_sd=0.2,
        first_prompt=1000 * seed,
    )
    return Trace.of(rounds, synthetic_provenance(gamma))


@pytest.fixture(scope="module")
def identity() -> Calibration:
    """The temperatures in force: 1 everywhere, which is right on the reference."""
    return Calibration(temperatures=(1.0, 1.0, 1.0))


def test_the_same_traffic_has_not_drifted(identity: Calibration) -> None:
    """Nothing moves, nothing is advised, exit code 0."""
    result = compute_drift(trace(0), trace(1), identity)
    assert (result.moved, result.outcome, result.exit_code) == ((), Outcome.PASS, 0)
    assert result.advice.action is Action.KEEP
    for position in result.positions:
        assert position.psi.value == pytest.approx(position.psi_floor, abs=0.02)


def test_wrong_temperatures_call_for_a_refit(identity: Calibration) -> None:
    """Traffic that needs T = 2 moves the calibration, and the refit finds about 2."""
    result = compute_drift(trace(0), trace(1, temperature=2.0, prompts=80), identity)
    assert "calibration" in result.moved
    assert result.exit_code == 1
    assert result.advice.action is Action.REFIT
    assert result.advice.temperatures is not None
    assert result.advice.temperatures[0] == pytest.approx(2.0, abs=0.25)


def test_other_traffic_with_the_right_temperatures_is_kept(identity: Calibration) -> None:
    """Easier prompts move confidence and acceptance; the table is still right, and that is said."""
    result = compute_drift(trace(0), trace(1, mean=2.7), identity)
    assert {"confidence", "acceptance"} <= set(result.moved)
    assert "calibration" not in result.moved
    assert result.exit_code == 1
    assert result.advice.action is Action.KEEP
    assert "as right on this traffic" in result.advice.reason


def test_worthless_drafts_are_not_drafted(identity: Calibration) -> None:
    """Almost nothing accepted: no draft; only the first draft worth it: one draft."""
    assert compute_drift(trace(0), trace(1, mean=-3.0, sd=1.0), identity).advice.action is Action.NONE
    shorter = compute_drift(trace(0), trace(1, mean=-0.8, sd=1.0), identity).advice
    assert shorter.action is Action.SHORTER
    assert "MTP-1" in shorter.reason


def test_confidences_that_rank_nothing_call_for_a_short_draft(identity: Calibration) -> None:
    """With AUROC at chance a scheduler cannot choose."""
    result = compute_drift(trace(0), trace(1, sd=0.01), identity)
    assert result.advice.action is Action.SHORTER
    assert "AUROC" in result.advice.reason


def test_little_traffic_is_inconclusive(identity: Calibration) -> None:
    """Ten prompts cannot show a change of .05: exit code 3, with the size they could show."""
    result = compute_drift(trace(0), trace(1, prompts=10), identity)
    assert result.exit_code == 3
    assert result.smallest_detectable is not None
    assert result.smallest_detectable > 0.05


def test_without_a_calibration_raw_confidences_are_said() -> None:
    """The view is raw, with a warning, and the JSON is strict."""
    result = compute_drift(trace(0, prompts=40), trace(1, prompts=40))
    assert result.view == "raw"
    assert "raw confidences" in result.warnings[0]
    body = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert [position["position"] for position in body["positions"]] == [1, 2, 3]
    assert len(body["positions"][0]["psi_interval"]) == 2


def test_a_scheduler_that_cut_windows_is_named() -> None:
    """Which positions are observed then depends on confidence, and the result says so."""
    rounds = trace(1, prompts=40).read()
    object.__setattr__(rounds, "verified", np.where(np.arange(len(rounds)) < 7, 2, 3).astype(np.int16))
    cut = Trace.of(rounds, synthetic_provenance(3))
    assert "cut 0 rounds of the reference and 7 of" in compute_drift(trace(0, prompts=40), cut).warnings[-1]


def test_another_block_size_is_refused() -> None:
    """γ must agree."""
    with pytest.raises(IncompatibleTraces, match=r"γ = 3.*γ = 2"):
        compute_drift(trace(0, prompts=5), trace(1, prompts=5, gamma=2))


def split(seed: int, whole: Trace) -> Drift:
    """Compare two random halves of the prompts of one trace."""
    rounds = whole.read()
    half = np.random.default_rng(seed).permutation(len(rounds.prompt_id.names)) % 2
    sides = [Trace.of(rounds.take(half[rounds.prompt_id.codes] == side), whole.provenance) for side in (0, 1)]
    return compute_drift(sides[0], sides[1], seed=seed)


@pytest.mark.slow
def test_halves_of_one_trace_are_rarely_flagged() -> None:
    """In at least 95 % of 200 random splits of one traffic nothing is flagged."""
    whole = trace(0, prompts=60)
    flagged = sum(split(seed, whole).exit_code == 1 for seed in range(200))
    assert flagged <= 10
