"""A planted regression through the whole path, trace → evaluation → gate, and the same gate with nothing planted."""

from dataclasses import replace

import numpy as np
import pytest

from dspark_calib.calibration import evaluate
from dspark_calib.decision.baseline import baseline_from_evaluation
from dspark_calib.decision.conditions import Conditions
from dspark_calib.decision.gate import compute_gate
from dspark_calib.survival import prefix_survival, sigmoid
from dspark_calib.trace import Rounds, Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

PROMPTS, ROUNDS, GAMMA = 200, 50, 7
# Slopes on logit(a_k) that give a population ECE of .02 and .05 at each position (checked below).
OFF_BY_02 = np.array([1.132, 1.114, 1.114, 1.114, 1.103, 1.103, 1.103])
OFF_BY_05 = np.array([1.425, 1.354, 1.354, 1.372, 1.366, 1.366, 1.396])


def draw(
    rng: np.random.Generator, slopes: np.ndarray, effects: np.ndarray, rounds: int = ROUNDS
) -> tuple[Rounds, np.ndarray]:
    """Rounds whose survivals are logit-scaled by `slopes`, and the true survivals; one effect a prompt on labels."""
    n = len(effects) * rounds
    x = rng.normal(1.7, 1.7, (n, GAMMA))
    true = np.cumprod(sigmoid(x + np.repeat(effects, rounds)[:, None]), axis=1)
    accepted = np.cumprod(rng.random((n, GAMMA)) < sigmoid(x + np.repeat(effects, rounds)[:, None]), axis=1).sum(axis=1)
    a = np.cumprod(sigmoid(x), axis=1).clip(1e-9, 1 - 1e-9)
    stated = sigmoid(np.log(a / (1 - a)) * slopes)
    c = np.concatenate([stated[:, :1], stated[:, 1:] / stated[:, :-1]], axis=1).clip(1e-9, 1 - 1e-9)
    blank = synthetic_rounds(rng, prompts=len(effects), rounds_per_prompt=rounds, temperatures=np.ones(GAMMA))
    logits = np.log(c / (1 - c)).astype(np.float32)
    return replace(blank, confidence_logits=logits, accepted=accepted.astype(np.int16)), true


def exit_codes(planted: int | None, runs: int) -> np.ndarray:
    """Exit codes of `--max-regression 0`: same prompts, fresh rounds on both sides."""
    rng = np.random.default_rng([7, GAMMA if planted is None else planted])
    slopes = OFF_BY_02.copy()
    if planted is not None:
        slopes[planted] = OFF_BY_05[planted]
    codes = []
    for _ in range(runs):
        effects = rng.normal(0.0, 0.3, PROMPTS)
        old, new = (
            evaluate(Trace.of(draw(rng, s, effects)[0], synthetic_provenance(GAMMA)), draws=500)
            for s in (OFF_BY_02, slopes)
        )
        baseline = baseline_from_evaluation(old, "raw", "old")
        codes.append(compute_gate(new, Conditions(max_regression=0.0), baseline=baseline).exit_code)
    return np.array(codes)


@pytest.mark.parametrize(("slopes", "ece"), [(OFF_BY_02, 0.02), (OFF_BY_05, 0.05)])
def test_what_is_planted(slopes: np.ndarray, ece: float) -> None:
    """The population ECE, from true survivals rather than labels, is what the runs below claim."""
    rng = np.random.default_rng(1)
    rounds, true = draw(rng, slopes, rng.normal(0.0, 0.3, 400_000), rounds=1)
    stated = prefix_survival(rounds.confidence_logits)
    for k in range(GAMMA):
        cell = np.minimum((stated[:, k] * 20).astype(int), 19)
        gap = np.abs(np.bincount(cell, stated[:, k] - true[:, k], 20)).sum() / len(true)
        assert gap == pytest.approx(ece, abs=0.002)


@pytest.mark.slow
@pytest.mark.parametrize("planted", [0, 3, 6])
def test_a_planted_regression_is_found(planted: int) -> None:
    """.02 → .05 at one position gives exit 1 in at least 90 % of runs."""
    assert (exit_codes(planted, 200) == 1).mean() >= 0.90


@pytest.mark.slow
def test_nothing_planted_is_no_regression() -> None:
    """Exit 1 in at most 5 % and exit 3 in at most 10 % of 1,000 runs of the whole gate."""
    codes = exit_codes(None, 1000)
    assert (codes == 1).mean() <= 0.05
    assert (codes == 3).mean() <= 0.10
