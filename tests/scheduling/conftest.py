"""Synthetic traces with every anchor, for the replay tests."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dspark_calib.trace import Rounds, Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def with_every_anchor(rounds: Rounds, anchors: int) -> Rounds:
    """Make each prompt's rounds the anchors of a response cut at the token limit: `anchors` + 1 tokens long."""
    left = rounds.prompt_length.astype(int) + anchors - rounds.anchor
    return replace(
        rounds,
        response_length=np.full(len(rounds), anchors + 1, np.int32),
        accepted=np.minimum(rounds.accepted, left).astype(np.int16),
        observed=np.minimum(rounds.gamma, left).astype(np.int16),
    )


def make_every_anchor(
    *,
    prompts: int = 40,
    anchors: int = 60,
    temperatures: list[float],
    seed: int = 0,
    mean: float = 1.7,
    prompt_effect_sd: float = 0.0,
) -> Trace:
    """Make a synthetic trace of every anchor with known true temperatures."""
    rounds = synthetic_rounds(
        np.random.default_rng(seed),
        prompts=prompts,
        rounds_per_prompt=anchors,
        temperatures=temperatures,
        logit_mean=mean,
        prompt_effect_sd=prompt_effect_sd,
    )
    provenance = replace(synthetic_provenance(len(temperatures)), anchor_policy="all")
    return Trace.of(with_every_anchor(rounds, anchors), provenance)


@pytest.fixture(scope="session")
def every_anchor() -> Callable[..., Trace]:
    """Make a synthetic trace of every anchor."""
    return make_every_anchor
