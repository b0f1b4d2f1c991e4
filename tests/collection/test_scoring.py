"""Parallel scoring: the same rounds whatever the policy, batch, chunk or order."""

import numpy as np
import pytest
import torch
from tiny_pair import TinyPair, make_pair, sample_responses

from dspark_calib.collection import blocks
from dspark_calib.collection.scoring import score_responses
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.drafters.dspark import DSparkDrafter
from dspark_calib.errors import CheckpointError, UnsupportedModel
from dspark_calib.trace.loop import visited_rows
from dspark_calib.trace.rounds import Rounds, concat_rounds

V, GAMMA, STOP = 40, 5, 39


@pytest.fixture(scope="module")
def pair() -> TinyPair:
    """Vocabulary of forty, blocks of five."""
    return make_pair(V, GAMMA, seed=1)


@pytest.fixture(scope="module")
def sequences(pair: TinyPair) -> list[ResponseSequence]:
    """Twelve sampled responses of several lengths and endings to prompts of several lengths."""
    out = []
    for i in range(12):
        prompt = list(range(2 + i % 4))
        response = sample_responses(pair, prompt, 1, 6 + 3 * i, seed=i, stop=STOP)[0]
        ending = "eos" if response[-1] == STOP else "length"
        out.append(
            ResponseSequence(
                dataset="d", domain="code", prompt_id=f"p{i}", token_ids=[*prompt, *response],
                prompt_length=len(prompt), ending=ending,
            )
        )  # fmt: skip
    return out


def score(pair: TinyPair, sequences: list[ResponseSequence], **options: object) -> Rounds:
    """At temperature 1, seed 0, unless told otherwise."""
    return score_responses(sequences, pair.target, pair.drafter, **({"temperature": 1.0, "seed": 0} | options))  # type: ignore[arg-type]


def assert_same(a: Rounds, b: Rounds) -> None:
    """The same rounds, floats to rounding."""
    assert a.prompt_id.decode() == b.prompt_id.decode()
    for name in ("replicate", "anchor", "accepted", "observed", "verified", "draft_tokens", "response_length"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for name in ("confidence_logits", "draft_logprobs", "draft_margin", "draft_entropy", "acceptance_probs"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), atol=2e-5, err_msg=name)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_loop_is_all_anchors_then_jumping(
    pair: TinyPair, sequences: list[ResponseSequence], temperature: float
) -> None:
    """Waves visit exactly the rounds found by jumping through a trace of all anchors, with the same draws."""
    everything = score(pair, sequences, anchors="all", temperature=temperature, replicates=2)
    loop = score(pair, sequences, temperature=temperature, replicates=2)
    assert_same(loop, everything.take(visited_rows(everything)))
    starts = {s.prompt_id: s.prompt_length for s in sequences}
    assert set(everything.anchor - everything.prompt_length) == set(range(int(everything.response_length.max()) - 1))
    assert all(loop.anchor[loop.prompt_id.codes == i].min() == starts[p] for i, p in enumerate(loop.prompt_id.names))


@pytest.mark.parametrize("anchors", ["loop", "all"])
def test_batches_and_chunks_change_nothing(
    pair: TinyPair, sequences: list[ResponseSequence], anchors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch, one sequence a batch, one anchor a pass, one row a look: the same rounds."""
    whole = score(pair, sequences, anchors=anchors)
    parts = [score(pair, [s], anchors=anchors) for s in sequences if s.response_length > 1]
    assert_same(whole, concat_rounds(parts))
    monkeypatch.setitem(blocks.ROW_ELEMENTS, "cpu", 1)
    assert_same(whole, score(pair, sequences, anchors=anchors, batch_tokens=1))


def test_replicates_are_trajectories_of_their_own(pair: TinyPair, sequences: list[ResponseSequence]) -> None:
    """Replicate 0 does not change when others are added, and the others differ from it."""
    one, three = score(pair, sequences), score(pair, sequences, replicates=3)
    assert_same(one, three.take(three.replicate == 0))
    second = three.take(three.replicate == 1)
    assert len(second) != len(one) or (second.draft_tokens != one.draft_tokens).any()


def test_acceptance_is_as_frequent_as_alpha_says(pair: TinyPair, sequences: list[ResponseSequence]) -> None:
    """Over many replicates, accepted drafts are as many as the sum of their acceptance probabilities."""
    rounds = score(pair, sequences, anchors="all", replicates=40)
    assert rounds.acceptance_probs is not None
    reached = ~np.isnan(rounds.acceptance_probs)
    alpha = rounds.acceptance_probs[reached].astype(float)
    left = rounds.prompt_length + rounds.response_length - 1 - rounds.anchor
    expected = np.minimum(np.minimum(rounds.accepted + 1, GAMMA), left)
    np.testing.assert_array_equal(reached.sum(axis=1), expected)
    # p(y)-weighted over the one response at hand, so only nearly: the response is one draw, the coupling many
    assert abs(rounds.accepted.sum() - alpha.sum()) < 0.1 * alpha.sum()


def test_greedy_alpha_is_the_outcome(pair: TinyPair, sequences: list[ResponseSequence]) -> None:
    """Greedy acceptance probabilities are 1 up to the last accepted draft and 0 at the rejection."""
    rounds = score(pair, sequences, anchors="all", temperature=0.0)
    assert rounds.acceptance_probs is not None
    for alpha, accepted in zip(rounds.acceptance_probs, rounds.accepted, strict=True):
        known = alpha[~np.isnan(alpha)].tolist()
        assert known[:accepted] == [1.0] * accepted
        assert known[accepted:] in ([], [0.0])


def test_short_responses_give_no_rounds(pair: TinyPair, sequences: list[ResponseSequence]) -> None:
    """A response of one token has no anchor with a token after it."""
    single = ResponseSequence(
        dataset="d", domain=None, prompt_id="x", token_ids=[1, 2, STOP], prompt_length=2, ending="eos"
    )
    assert len(score(pair, [single])) == 0
    assert_same(score(pair, [single, sequences[3]]), score(pair, [sequences[3]]))


def test_proxies_stand_in_for_the_head(pair: TinyPair, sequences: list[ResponseSequence]) -> None:
    """Another confidence source changes that column alone; without a head it must be named."""
    head, proxy = score(pair, sequences), score(pair, sequences, confidence="margin")
    np.testing.assert_allclose(proxy.confidence_logits, head.draft_margin)
    bare = DSparkDrafter(
        gamma=GAMMA,
        vocab_size=V,
        target_layer_ids=(-1, 1),
        backbone=pair.drafter.backbone,
        markov=None,
        confidence=None,
    )
    with pytest.raises(UnsupportedModel, match="--confidence draft-prob"):
        score_responses(sequences, pair.target, bare, temperature=1.0, seed=0)
    assert len(score_responses(sequences, pair.target, bare, temperature=1.0, seed=0, confidence="entropy"))


def test_confidence_that_is_not_finite_is_named(sequences: list[ResponseSequence]) -> None:
    """Dataset, prompt, anchor and position of the first broken confidence logit are said."""
    broken = make_pair(V, GAMMA, seed=1)
    assert broken.drafter.confidence is not None
    broken.drafter.confidence.bias.fill_(torch.nan)
    with pytest.raises(CheckpointError, match=r"dataset d, prompt p0, anchor 2, position 1.*nan"):
        score(broken, sequences)
