"""The coupling and its parts against enumeration, loops and scipy."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from scipy.special import softmax as scipy_softmax

from dspark_calib.collection.law import couple, read_draft_rows
from dspark_calib.collection.uniforms import coupling_uniforms
from dspark_calib.collection.vocabulary_rows import draw_tokens, top_two

GRID = 400


def even_uniforms(n: int) -> torch.Tensor:
    """The midpoints of n equal parts of [0, 1): integrating over them is exact to 1/n."""
    return (torch.arange(n) + 0.5) / n


@pytest.mark.parametrize("seed", range(5))
def test_coupling_has_the_joint_law_of_speculative_sampling(seed: int) -> None:
    """P(x = v, accepted, y) over all uniforms equals what an engine's accept-or-resample gives."""
    rng = np.random.default_rng(seed)
    p, q = (scipy_softmax(rng.normal(scale=1.5, size=4)) for _ in range(2))
    residual = np.maximum(p - q, 0)
    engine = np.zeros((4, 2, 4))  # draft, accepted, token kept
    for v, y in itertools.product(range(4), range(4)):
        accept = min(1.0, p[v] / q[v])
        engine[v, 1, y] += q[v] * accept * (v == y)
        engine[v, 0, y] += q[v] * (1 - accept) * residual[y] / residual.sum()
    ours = np.zeros_like(engine)
    grid = even_uniforms(GRID)
    accept_by, draw_by = grid.repeat_interleave(GRID), grid.repeat(GRID)
    for y in range(4):
        rows = torch.tensor(np.tile(q, (GRID * GRID, 1)), dtype=torch.float32)
        tokens = torch.full((GRID * GRID,), y)
        accepted, alpha = couple(rows, torch.tensor(p, dtype=torch.float32).expand_as(rows), tokens, accept_by)
        drafts = torch.where(accepted, tokens, draw_tokens(rows, draw_by))
        np.testing.assert_allclose(alpha, np.minimum(p, q).sum(), atol=1e-6)
        np.add.at(ours, (drafts.numpy(), accepted.long().numpy(), y), p[y] / GRID**2)
    np.testing.assert_allclose(ours, engine, atol=2.5 / GRID)


def test_equal_distributions_accept_everything() -> None:
    """Where q = p there is no residual: every token is accepted whatever the uniforms."""
    p = torch.softmax(torch.randn(3, 50), dim=-1)
    accepted, alpha = couple(p.clone(), p, torch.tensor([0, 7, 49]), torch.tensor([0.0, 0.5, 0.9999999]))
    assert accepted.all()
    assert (alpha > 1 - 1e-5).all()


def test_draft_rows_equal_scipy() -> None:
    """log q, margin and entropy equal float64 arithmetic, also with impossible tokens and bfloat16 input."""
    rng = np.random.default_rng(1)
    logits = rng.normal(scale=4, size=(20, 384)).astype(np.float32)
    logits[:, 100:] = -1e30
    rows = read_draft_rows(torch.from_numpy(logits))
    exact = log_softmax(logits.astype(np.float64), axis=-1)
    two = np.sort(logits, axis=-1)[:, -2:]
    chosen = torch.arange(20)
    np.testing.assert_allclose(rows.log_probs(chosen), exact[np.arange(20), np.arange(20)], atol=1e-5)
    np.testing.assert_allclose(rows.margin, two[:, 1] - two[:, 0], rtol=1e-6)
    np.testing.assert_allclose(rows.entropy, -(np.exp(exact) * np.maximum(exact, -1e9)).sum(-1), atol=1e-5)
    np.testing.assert_array_equal(rows.top_token, logits.argmax(-1))
    half = torch.from_numpy(logits).bfloat16()
    np.testing.assert_allclose(read_draft_rows(half).entropy, read_draft_rows(half.float()).entropy)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_probabilities_are_the_softmax_at_the_temperature(temperature: float) -> None:
    """q at τ equals scipy's softmax(z/τ)."""
    logits = np.random.default_rng(2).normal(scale=3, size=(5, 77)).astype(np.float32)
    q = read_draft_rows(torch.from_numpy(logits)).probabilities(temperature)
    np.testing.assert_allclose(q, scipy_softmax(logits / temperature, axis=-1), atol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 31, 32, 77, 256, 300, 512, 1024])
def test_top_two_equals_topk(size: int) -> None:
    """Highest and second highest of any vocabulary size, ties included, equal torch.topk."""
    logits = torch.randn(40, size, generator=torch.Generator().manual_seed(size)).mul(4).round()
    highest, token, second = top_two(logits)
    values = logits.topk(2).values
    assert torch.equal(highest, values[:, 0])
    assert torch.equal(second, values[:, 1])
    assert torch.equal(logits.gather(1, token[:, None])[:, 0], highest)


@pytest.mark.parametrize("size", [2, 5, 32, 77, 300, 512])
def test_draws_are_the_inverse_cdf(size: int) -> None:
    """The token drawn is the first whose cumulative weight exceeds u·total, and has positive weight."""
    generator = torch.Generator().manual_seed(size)
    weights = torch.rand(300, size, generator=generator) * (torch.rand(300, size, generator=generator) < 0.3)
    weights[:, 0] += 0.01
    uniforms = torch.rand(300, generator=generator)
    tokens = draw_tokens(weights, uniforms)
    cdf = weights.double().cumsum(dim=-1)
    goal = uniforms.double() * cdf[:, -1]
    assert (weights.gather(1, tokens[:, None]) > 0).all()
    slack = 1e-5 * cdf[:, -1]
    assert (cdf.gather(1, tokens[:, None])[:, 0] > goal - slack).all()
    assert (cdf.gather(1, tokens[:, None])[:, 0] - weights.gather(1, tokens[:, None])[:, 0] <= goal + slack).all()


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=90), st.floats(0, 1, exclude_max=True, width=32))
@settings(deadline=None, max_examples=200)
def test_draws_never_pick_a_token_without_weight(weights: list[float], uniform: float) -> None:
    """Whatever the weights, rounding never lands on a zero."""
    if sum(weights) < 1e-6:
        return
    token = int(draw_tokens(torch.tensor([weights]), torch.tensor([uniform])))
    assert weights[token] > 0


def test_uniforms_depend_on_their_key_alone() -> None:
    """More anchors extend the stream; another seed, dataset, prompt or replicate is another stream."""
    few, many = (coupling_uniforms(3, "gsm8k", "L1", 0, n, 7) for n in (4, 9))
    np.testing.assert_array_equal(few, many[:4])
    others = [(4, "gsm8k", "L1", 0), (3, "mbpp", "L1", 0), (3, "gsm8k", "L2", 0), (3, "gsm8k", "L1", 1)]
    for key in others:
        assert not np.isin(coupling_uniforms(*key, 4, 7), few).any()
    assert many.min() >= 0
    assert many.max() < 1
