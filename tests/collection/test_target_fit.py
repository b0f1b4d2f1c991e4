"""Whether responses are the target's own: exact moments, own responses pass, foreign ones are found."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from tiny_pair import make_pair, sample_responses

from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target_fit import TargetFit, add_fits, count_misfits, measure_target_fit

PROMPT = [1, 2, 3]


def sequences(responses: list[list[int]]) -> list[ResponseSequence]:
    """These responses behind the prompt."""
    return [
        ResponseSequence(
            dataset="d", domain=None, prompt_id=str(i), token_ids=PROMPT + r, prompt_length=3, ending="length"
        )
        for i, r in enumerate(responses)
    ]


def test_sums_are_those_of_a_plain_loop() -> None:
    """Σ log p(y) + H(p), Σ Var(log p) and the argmax count of one response, position by position in float64."""
    pair = make_pair(vocab=11, gamma=2)
    response = [4, 0, 7, 7, 10]
    excess = variance = 0.0
    argmax = 0
    for i, y in enumerate(response):
        with torch.inference_mode():
            z = pair.model(torch.tensor([PROMPT + response[:i]])).logits[0, -1].double().numpy() / 0.8
        p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        excess += math.log(p[y]) - float((p * np.log(p)).sum())
        variance += float((p * np.log(p) ** 2).sum() - (p * np.log(p)).sum() ** 2)
        argmax += int(p.argmax() == y)
    for batch_tokens in (1, 1000):
        _, fit = measure_target_fit(sequences([[1, 1], response]), pair.target, 0.8, batch_tokens)
        assert fit.tokens == 5
        assert fit.argmax == argmax
        assert fit.excess == pytest.approx(excess, abs=1e-4)
        assert fit.variance == pytest.approx(variance, abs=1e-4)


def fits_at(temperature: float, judged_at: float) -> Any:
    """400 responses of 20 tokens drawn by transformers at one temperature, judged at another."""
    pair = make_pair(vocab=11, gamma=2)
    head = pair.model.lm_head.weight
    with torch.no_grad():
        head.div_(temperature)
        drawn = sample_responses(pair, PROMPT, 400, 20, seed=5)
        head.mul_(temperature)
    return measure_target_fit(sequences(drawn), pair.target, judged_at, 4096)


def test_own_responses_are_standard_normal_and_pass() -> None:
    """z has mean 0 and variance 1 within five standard errors, and nothing is flagged."""
    fits = fits_at(1.0, 1.0)
    z = np.array([fit.z for fit in fits])
    assert abs(z.mean()) < 5 / math.sqrt(400)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / 400)
    assert count_misfits(fits, 1.0) == 0


@pytest.mark.parametrize(("drawn_at", "judged_at"), [(0.7, 1.0), (1.3, 1.0), (1.0, 0.7)])
def test_another_temperature_is_found(drawn_at: float, judged_at: float) -> None:
    """Together the responses are far off even where none of them is alone."""
    assert count_misfits(fits_at(drawn_at, judged_at), judged_at) > 0


def fit(z: float = 0.0, argmax: int = 100) -> TargetFit:
    """A response of 100 tokens."""
    return TargetFit(tokens=100, excess=z, variance=1.0, argmax=argmax)


def test_thresholds_are_those_that_are_written_down() -> None:
    """One of n is flagged beyond the normal quantile of 1e-4/n two-sided; greedy below 98 % argmax."""
    limit = float(norm.isf(1e-4 / 50 / 2))
    others = [fit()] * 49
    assert count_misfits([fit(limit + 0.01), *others], 1.0) == 1
    assert count_misfits([fit(-limit - 0.01), *others], 1.0) == 1
    assert count_misfits([fit(limit - 0.01), *others], 1.0) == 0
    assert count_misfits([fit(1.0)] * 50, 1.0) == 50  # pooled z = 7.07
    assert count_misfits([fit(argmax=98)] * 50, 0.0) == 0
    assert count_misfits([fit(argmax=90)] + [fit()] * 9, 0.0) == 0  # 99 % all together: ties
    assert count_misfits([fit(argmax=70)] + [fit()] * 9, 0.0) == 1
    assert count_misfits([], 1.0) == 0
    assert add_fits([fit(1.0), fit(2.0)]).z == pytest.approx(3 / math.sqrt(2))
