"""How often the 95 % interval of ECE holds the truth, and how often "at the floor" is true."""

import math

import numpy as np
import pytest

from dspark_calib.calibration import evaluate
from dspark_calib.metrics import compute_ece
from dspark_calib.trace import Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

LOGIT_SD, PROMPT_SD = 1.3, 0.5


def population_ece(temperature: float, rounds: int = 5_000_000) -> float:
    """Return the binned ECE of raw confidences over fresh prompts, one a round, with soft labels.

    The label's chance given z is the mean of σ(z/T + u) over u ~ N(0, .5²), by Gauss-Hermite quadrature.
    """
    z = np.random.default_rng(99).normal(0, LOGIT_SD, rounds)
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    chance = np.zeros(rounds)
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        chance += weight / (1 + np.exp(-z / temperature - PROMPT_SD * node))
    return compute_ece(1 / (1 + np.exp(-z)), chance)


def coverage(temperature: float, replications: int, draws: int) -> tuple[float, float]:
    """Return the share of intervals that hold the truth, and the share of replications said to be at the floor."""
    truth, covered, at_floor = population_ece(temperature, 5_000_000 if replications > 100 else 500_000), 0, 0
    for seed in range(replications):
        rounds = synthetic_rounds(
            np.random.default_rng([7, seed]),
            prompts=200,
            rounds_per_prompt=60,
            temperatures=[temperature],
            logit_mean=0.0,
            logit_sd=LOGIT_SD / temperature,
            prompt_effect_sd=PROMPT_SD,
        )
        found = evaluate(Trace.of(rounds, synthetic_provenance(1)), draws=draws, seed=seed).groups[0].raw.cumulative[0]
        if found.ece_at_floor:
            at_floor += 1
            covered += found.ece_floor_high is not None and truth <= found.ece_floor_high
        else:
            covered += found.ece.low is not None and found.ece.low <= truth <= (found.ece.high or 0)
    return covered / replications, at_floor / replications


def least(replications: int) -> float:
    """Return 90 % less two Monte-Carlo standard deviations."""
    return 0.9 - 2 * math.sqrt(0.9 * 0.1 / replications)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.3, 1.0])
def test_intervals_cover_in_1000_replications(temperature: float) -> None:
    """200 prompts × 60 rounds, T = 1.3 and 1: interval or floor statement true in ≥ 90 % less two deviations."""
    covered, _ = coverage(temperature, replications=1000, draws=400)
    assert covered >= least(1000)


@pytest.mark.parametrize("temperature", [1.3, 1.0])
def test_intervals_cover_in_50_replications(temperature: float) -> None:
    """The same in small."""
    covered, _ = coverage(temperature, replications=50, draws=200)
    assert covered >= least(50)


def test_calibrated_rounds_are_said_to_be_at_the_floor() -> None:
    """With T = 1 the prompt effect alone leaves an ECE of .003, far under the floor of .01: said so most times."""
    _, at_floor = coverage(1.0, replications=30, draws=200)
    assert at_floor >= 0.7
