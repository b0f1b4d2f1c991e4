"""Parallel collection and the decoding loop against the exact joint law of speculative sampling."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tiny_pair import TinyPair, make_pair, sample_responses

from dspark_calib.collection.decoding_loop import decode
from dspark_calib.collection.scoring import score_responses
from dspark_calib.collection.sequences import ResponseSequence

V, GAMMA, STOP = 4, 2, 3
PROMPT = [0, 1, 2, 0, 2]
LIMIT = 6
Cell = tuple[int, ...]
Law = dict[Cell, float]
"""Probability of (anchor token, drafts …, accepted, observed) of the first round."""


@pytest.fixture(scope="module")
def pair() -> TinyPair:
    """Vocabulary of four, blocks of two."""
    return make_pair(V, GAMMA, seed=4)


@torch.inference_mode()
def target_law(pair: TinyPair, tokens: list[int]) -> np.ndarray:
    """p of the next token, by transformers alone."""
    return pair.model(torch.tensor([tokens])).logits[0, -1].double().softmax(-1).numpy()


@torch.inference_mode()
def draft_law(pair: TinyPair, anchor_token: int, drafts: list[int]) -> np.ndarray:
    """q of the next draft after these."""
    tokens = torch.tensor([[*PROMPT, anchor_token]])
    features = pair.model(tokens[:, :-1], output_hidden_states=True).hidden_states
    block = pair.drafter.encode(tokens, torch.cat((features[0], features[2]), dim=-1)).draft(torch.tensor([[5]]))
    previous = [anchor_token, *drafts]
    steps = [block.step(k, torch.tensor([[token]])).logits[0, 0].double() for k, token in enumerate(previous)]
    return steps[-1].softmax(-1).numpy()


@pytest.fixture(scope="module")
def exact_law(pair: TinyPair) -> Law:
    """Enumerate what an engine does: prefill, draft from q, accept with min(1, p/q), stop at an accepted stop."""
    law: Law = Counter()
    for anchor, p_anchor in enumerate(target_law(pair, PROMPT)):
        if anchor == STOP:
            continue
        for drafts in itertools.product(range(V), repeat=GAMMA):
            probability, tokens = p_anchor, [*PROMPT, anchor]
            q = [draft_law(pair, anchor, list(drafts[:k]))[x] for k, x in enumerate(drafts)]
            probability *= np.prod(q)
            standing = 1.0
            for k, x in enumerate(drafts):
                accept = min(1.0, target_law(pair, tokens)[x] / q[k])
                law[(anchor, *drafts, k, GAMMA)] += probability * standing * (1 - accept)
                standing *= accept
                tokens.append(x)
                if x == STOP or k == GAMMA - 1:
                    law[(anchor, *drafts, k + 1, k + 1 if x == STOP else GAMMA)] += probability * standing
                    break
    total = sum(law.values())
    return {cell: p / total for cell, p in law.items() if p > 0}


def check(counts: Counter[Cell], law: Law) -> None:
    """Chi-square of the counts against the law, rare cells together."""
    assert not set(counts) - set(law), "an outcome that cannot be"
    n = sum(counts.values())
    rare = [cell for cell, p in law.items() if n * p < 5]
    common = [cell for cell in law if cell not in set(rare)]
    observed = [counts[c] for c in common] + [sum(counts[c] for c in rare)]
    expected = [n * law[c] for c in common] + [n * sum(law[c] for c in rare)]
    assert len(common) > 20
    assert chisquare(observed, expected).pvalue > 0.001


def test_parallel_scoring_has_the_exact_law(pair: TinyPair, exact_law: Law) -> None:
    """(anchor token, drafts, accepted, observed) of 6,000 first rounds, from responses transformers sampled."""
    responses = sample_responses(pair, PROMPT, 6000, LIMIT, seed=1, stop=STOP)
    sequences = [
        ResponseSequence(
            dataset="d", domain=None, prompt_id=str(i), token_ids=[*PROMPT, *r], prompt_length=len(PROMPT),
            ending="eos" if r[-1] == STOP else "length",
        )
        for i, r in enumerate(responses)
    ]  # fmt: skip
    rounds = score_responses(sequences, pair.target, pair.drafter, temperature=1.0, seed=2)
    first = rounds.take(rounds.anchor == len(PROMPT))
    anchors = [responses[int(i)][0] for i in first.prompt_id.decode() if i is not None]
    drafts = first.draft_tokens
    assert drafts is not None
    cells = zip(anchors, drafts.tolist(), first.accepted.tolist(), first.observed.tolist(), strict=True)
    check(Counter((anchor, *x, tau, seen) for anchor, x, tau, seen in cells), exact_law)


def test_decoding_loop_has_the_exact_law(pair: TinyPair, exact_law: Law) -> None:
    """The same of 1,000 first rounds decoded one block at a time."""
    rng = np.random.default_rng(3)
    counts: Counter[Cell] = Counter()
    while sum(counts.values()) < 1000:
        decoded = decode(
            PROMPT, pair.target, pair.drafter, temperature=1.0, max_new_tokens=GAMMA + 2, stop_tokens=[STOP], rng=rng
        )
        for first in decoded.rounds[:1]:
            counts[(decoded.token_ids[5], *first.draft_tokens, first.accepted, first.observed)] += 1
    check(counts, exact_law)
