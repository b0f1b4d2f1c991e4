"""Every family under sampling: drafts and accepted lengths have the law of speculative decoding, enumerated."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from tiny_pairs import FAMILIES, GAMMA, PROMPT, STOP, TinyPair, V, tiny_target

from dspark_calib.collection.decoding_loop import decode
from dspark_calib.collection.scoring import score_responses
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target_states import TargetForward

TEMPERATURE = 0.8
RESPONSE = GAMMA + 2  # long enough that no first block is cut
Block = tuple[tuple[int, ...], int, int]  # drafts, accepted, observed


class Enumeration:
    """Exact laws of one pair, by brute force over all drafts and responses."""

    def __init__(self, pair: TinyPair) -> None:
        self.target_law = cache(lambda text: target_law(pair.model, text))
        self.draft_law = cache(lambda text, drafts: heated(pair.law(text, drafts)))

    def first_blocks(self) -> dict[Block, float]:
        """Probabilities of (drafts, accepted, observed) at the first response token, which is no stop token."""
        law: defaultdict[Block, float] = defaultdict(float)
        start = self.target_law(PROMPT)
        for anchor in set(range(V)) - {STOP}:
            text = (*PROMPT, anchor)
            for drafts, chance in self.chains(text, ()):
                for accepted, observed, judged in self.judge(text, drafts):
                    law[drafts, accepted, observed] += start[anchor] / (1 - start[STOP]) * chance * judged
        return law

    def chains(self, text: tuple[int, ...], drafts: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], float]]:
        """All draft blocks and their probabilities."""
        q = self.draft_law(text, drafts) if len(drafts) < GAMMA else None
        if q is None:
            yield drafts, 1.0
            return
        for token in (v for v in range(V) if q[v] > 0):
            for chain, rest in self.chains(text, (*drafts, token)):
                yield chain, q[token] * rest

    def judge(self, text: tuple[int, ...], drafts: tuple[int, ...]) -> Iterator[tuple[int, int, float]]:
        """(accepted, observed, probability) by Leviathan's test; an accepted stop token ends the block."""
        standing = 1.0
        for k, token in enumerate(drafts):
            p, q = self.target_law((*text, *drafts[:k])), self.draft_law(text, drafts[:k])
            accept = min(1.0, p[token] / q[token])
            yield k, len(drafts), standing * (1 - accept)
            standing *= accept
            if token == STOP:
                yield k + 1, k + 1, standing
                return
        yield len(drafts), len(drafts), standing

    def draw_response(self, rng: np.random.Generator) -> tuple[int, ...]:
        """A response the target wrote, cut at RESPONSE tokens, whose first token is no stop token."""
        text: tuple[int, ...] = PROMPT
        while len(text) < len(PROMPT) + RESPONSE and text[-1] != STOP:
            p = np.array(self.target_law(text))
            if len(text) == len(PROMPT):
                p[STOP] = 0
            text = (*text, int(rng.choice(V, p=p / p.sum())))
        return text[len(PROMPT) :]


def target_law(model: Any, text: Sequence[int]) -> list[float]:
    """p of the next token, from transformers itself."""
    with torch.no_grad():
        logits = model(torch.tensor([list(text)])).logits[0, -1].double()
    law: list[float] = torch.softmax(logits / TEMPERATURE, -1).tolist()
    return law


def heated(q: list[float] | None) -> list[float] | None:
    """The draft distribution at the sampling temperature."""
    if q is None:
        return None
    powered = [x ** (1 / TEMPERATURE) for x in q]
    return [x / sum(powered) for x in powered]


def fits(counts: Counter[Block], law: dict[Block, float]) -> float:
    """p-value of a chi-square test; outcomes expected fewer than 5 times are pooled, impossible ones fail."""
    total = counts.total()
    assert set(counts) <= {block for block, chance in law.items() if chance > 0}
    assert abs(sum(law.values()) - 1) < 1e-5
    common = [block for block, chance in law.items() if chance * total >= 5]
    observed, expected = [counts[b] for b in common], [law[b] * total for b in common]
    rare = total - sum(expected)
    if rare > 1e-6:
        observed, expected = [*observed, total - sum(observed)], [*expected, rare]
    expected = np.array(expected) * (total / sum(expected))  # the enumeration's float32 sums to 1 within 1e-5
    return float(chisquare(observed, expected).pvalue) if len(expected) > 1 else 1.0


@pytest.fixture(params=list(FAMILIES))
def pair(request: pytest.FixtureRequest) -> TinyPair:
    """One pair of every family."""
    return FAMILIES[request.param](tiny_target())


def test_parallel_scoring_follows_the_enumerated_law(pair: TinyPair) -> None:
    """6,000 first blocks of responses the target wrote: drafts, accepted and observed pass a chi-square test."""
    law, rng = Enumeration(pair), np.random.default_rng(7)
    sequences = []
    for i in range(6000):
        response = law.draw_response(rng)
        ending = "eos" if response[-1] == STOP else "length"
        sequences.append(
            ResponseSequence(
                dataset="tiny", domain=None, prompt_id=str(i), token_ids=(*PROMPT, *response),
                prompt_length=len(PROMPT), ending=ending,
            )
        )  # fmt: skip
    target = TargetForward(pair.model, pair.drafter.target_layer_ids)
    rounds = score_responses(
        sequences, target, pair.drafter, temperature=TEMPERATURE, seed=3, confidence="draft-prob", batch_tokens=1 << 16
    )
    first = rounds.take(rounds.anchor == len(PROMPT))
    # a response of one token has no anchor: its block is known to have been written by the target alone
    assert first.draft_tokens is not None
    counts = Counter(
        (tuple(drafts[:verified].tolist()), int(accepted), int(observed))
        for drafts, verified, accepted, observed in zip(
            first.draft_tokens, first.verified, first.accepted, first.observed, strict=True
        )
    )
    assert counts.total() == len(sequences)
    assert fits(counts, law.first_blocks()) > 1e-3


@pytest.mark.slow
def test_the_decoding_loop_follows_the_enumerated_law(pair: TinyPair) -> None:
    """600 decoded first blocks pass the same test."""
    law, counts, rng = Enumeration(pair), Counter[Block](), np.random.default_rng(11)
    target = TargetForward(pair.model, pair.drafter.target_layer_ids)
    while counts.total() < 600:
        decoded = decode(
            PROMPT, target, pair.drafter, temperature=TEMPERATURE, max_new_tokens=RESPONSE, stop_tokens=(STOP,), rng=rng
        )
        if decoded.rounds:
            first = decoded.rounds[0]
            counts[first.draft_tokens, first.accepted, first.observed] += 1
    assert fits(counts, law.first_blocks()) > 1e-3
