"""How often intervals of composed measures hold the truth of the labels the scheduler hid."""

import math

import numpy as np
import pytest
from recomposed import cut_below

from dspark_calib.calibration import evaluate
from dspark_calib.metrics import Estimate, PositionScores, compute_ece
from dspark_calib.trace import Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

GAMMA, BINS, PROMPT_SD, LOGIT_MEAN, LOGIT_SD = 3, 10, 0.3, 1.0, 1.7
NAMES = ("ece", "bias", "brier", "log_loss", "auroc")


def population(temperature: float, rounds: int = 500_000) -> list[dict[str, float]]:
    """Return the measures of raw confidences over fresh prompts, one a round, with soft labels, by position.

    The chance of a prefix given its logits is the mean of Π σ(z_i/T + u) over u ~ N(0, .3²), by quadrature.
    """
    x = np.random.default_rng(99).normal(LOGIT_MEAN, LOGIT_SD, (rounds, GAMMA))
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    chance = np.zeros((rounds, GAMMA))
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        chance += weight * np.cumprod(1 / (1 + np.exp(-x - PROMPT_SD * node)), axis=1)
    log_survival = -np.logaddexp(0, -x * temperature).cumsum(axis=1)
    return [_measures(log_survival[:, k], chance[:, k]) for k in range(GAMMA)]


def _measures(log_survival: np.ndarray, y: np.ndarray) -> dict[str, float]:
    p, order = np.exp(log_survival), np.argsort(log_survival)
    losers = (1 - y)[order]
    return {
        "ece": compute_ece(p, y, bins=BINS),
        "bias": float((p - y).mean()),
        "brier": float((y * (1 - p) ** 2 + (1 - y) * p**2).mean()),
        "log_loss": float(-(y * log_survival + (1 - y) * np.log(-np.expm1(log_survival))).mean()),
        "auroc": float((y[order] * (np.cumsum(losers) - losers / 2)).sum() / (y.sum() * losers.sum())),
    }


def coverage(temperature: float, replications: int, draws: int) -> tuple[dict[tuple[str, int], float], float]:
    """Return the share of true statements by measure and position, and the share of ECEs said to be at the floor.

    100 prompts × 50 rounds; the threshold on c_k changes with a load that knows nothing of the drafts, and all
    bins are judged sometimes, so that the composed measures speak of all rounds.
    """
    truth, at_floor = population(temperature), 0
    held = {(name, k): 0 for name in NAMES for k in range(GAMMA)}
    for seed in range(replications):
        full = synthetic_rounds(
            np.random.default_rng([7, seed]),
            prompts=100,
            rounds_per_prompt=50,
            temperatures=[temperature] * GAMMA,
            logit_mean=LOGIT_MEAN,
            logit_sd=LOGIT_SD,
            prompt_effect_sd=PROMPT_SD,
        )
        cut = cut_below(full, np.random.default_rng([8, seed]).choice([0.0, 0.6, 0.9], len(full), p=[0.3, 0.4, 0.3]))
        trace = Trace.of(cut, synthetic_provenance(GAMMA))
        for k, scores in enumerate(evaluate(trace, bins=BINS, draws=draws, seed=seed).groups[0].raw.cumulative):
            assert scores.n > 0.97 * len(full)  # now and then a rare bin holds fewer than ten judged rows
            at_floor += bool(scores.ece_at_floor)
            for name in NAMES:
                held[name, k] += _true(scores, name, truth[k][name])
    return {key: count / replications for key, count in held.items()}, at_floor / (replications * GAMMA)


def _true(scores: PositionScores, name: str, truth: float) -> bool:
    estimate: Estimate = getattr(scores, name)
    if name == "ece" and scores.ece_at_floor:
        return scores.ece_floor_high is not None and truth <= scores.ece_floor_high
    return estimate.low is not None and estimate.high is not None and estimate.low <= truth <= estimate.high


def check(temperature: float, replications: int, draws: int) -> None:
    """Every measure at every position: ≥ 90 % less two Monte-Carlo standard deviations."""
    held, at_floor = coverage(temperature, replications, draws)
    least = 0.9 - 2 * math.sqrt(0.9 * 0.1 / replications)
    assert {key: share for key, share in held.items() if share < least} == {}
    assert at_floor >= 0.9 if temperature == 1.0 else at_floor <= 0.1


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.5, 1.0])
def test_composed_intervals_cover_in_500_replications(temperature: float) -> None:
    """Overconfident and calibrated."""
    check(temperature, replications=500, draws=400)


@pytest.mark.parametrize("temperature", [1.5, 1.0])
def test_composed_intervals_cover_in_60_replications(temperature: float) -> None:
    """The same in small."""
    check(temperature, replications=60, draws=200)
