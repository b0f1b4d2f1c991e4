"""Blocks with fewer drafts than γ, from the drafter through the trace to τ: complete, never 'cut'."""

from dataclasses import replace

import numpy as np
import pytest
from tiny_pairs import FAMILIES, GAMMA, PROMPT, STOP, TinyPair, tiny_target

from dspark_calib.collection.decoding_loop import decode
from dspark_calib.collection.scoring import score_responses
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target_states import TargetForward
from dspark_calib.metrics.acceptance import policy_cut, round_facts
from dspark_calib.trace.rounds import NO_DRAFT_LOGIT, Rounds, check_rounds, offered_drafts


def collect(pair: TinyPair, count: int, temperature: float, replicates: int = 1) -> Rounds:
    """Rounds of responses written by the decoding loop."""
    target = TargetForward(pair.model, pair.drafter.target_layer_ids)
    sequences = []
    for i in range(count):
        decoded = decode(
            (*PROMPT[: 2 + i % 4],), target, pair.drafter, temperature=temperature, max_new_tokens=20,
            stop_tokens=(STOP,), rng=np.random.default_rng(i),
        )  # fmt: skip
        sequences.append(
            ResponseSequence(
                dataset="d", domain=None, prompt_id=str(i), token_ids=decoded.token_ids,
                prompt_length=decoded.prompt_length, ending=decoded.ending,
            )
        )  # fmt: skip
    return score_responses(
        sequences, target, pair.drafter, temperature=temperature, seed=5, confidence="draft-prob", replicates=replicates
    )


@pytest.mark.parametrize("name", ["ngram", "eagle3 gemma4"])
def test_a_missing_draft_is_absent_not_rejected(name: str) -> None:
    """verified is what was offered, observed at most that; the slots behind it say that there is no draft."""
    rounds = collect(FAMILIES[name](tiny_target()), 12, temperature=1.0, replicates=20)
    check_rounds(rounds, "here")
    short = rounds.verified < GAMMA
    assert short.any()
    assert (~short).any()
    absent = np.arange(GAMMA) >= rounds.verified[:, None]
    assert rounds.draft_tokens is not None
    assert (rounds.draft_tokens[absent] == -1).all()
    assert (rounds.draft_tokens[~absent] >= 0).all()
    assert (rounds.confidence_logits[absent] == NO_DRAFT_LOGIT).all()
    assert (rounds.confidence_logits[~absent] > NO_DRAFT_LOGIT).all()
    assert rounds.draft_logprobs is not None
    assert np.isnan(rounds.draft_logprobs[absent]).all()
    assert (rounds.observed <= rounds.verified).all()
    np.testing.assert_array_equal(offered_drafts(rounds), rounds.verified)


def test_rounds_without_a_match_count_for_the_accepted_length() -> None:
    """τ counts a round without drafts as one token; only rounds that the text itself ends are left out."""
    pair = FAMILIES["ngram"](tiny_target())
    rounds = collect(pair, 15, temperature=0.0)
    assert not policy_cut(rounds).any()
    facts = round_facts(rounds, np.zeros(len(rounds), dtype=np.int32))
    left = rounds.prompt_length + rounds.response_length - 1 - rounds.anchor
    by_limit = np.array([e == "length" for e in rounds.ending.decode()]) & (left < rounds.verified)
    ends = np.array([e == "eos" for e in rounds.ending.decode()]) & (rounds.accepted == left)
    assert int(facts.steps.sum()) == int((~by_limit).sum())
    assert int(facts.tokens.sum()) == int((rounds.accepted + ~ends)[~by_limit].sum())
    assert int(facts.cut.sum()) == 0
    assert ((rounds.verified == 0) & ~by_limit).any()


def test_a_block_that_a_scheduler_cut_is_still_cut() -> None:
    """The same counts with confidences behind the cut are drafts that exist and were not verified."""
    rounds = collect(FAMILIES["ngram"](tiny_target()), 10, temperature=0.0)
    logits = np.where(rounds.confidence_logits == NO_DRAFT_LOGIT, np.float32(-2.0), rounds.confidence_logits)
    known = replace(rounds, confidence_logits=logits)
    assert (offered_drafts(known) == GAMMA).all()
    assert policy_cut(known).any()
