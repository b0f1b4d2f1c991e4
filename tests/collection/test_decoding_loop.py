"""The decoding loop: lossless by itself, and equal to parallel scoring round by round."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_pair import make_pair
from transformers import AutoModelForCausalLM

from dspark_calib.collection.decoding_loop import Decoded, decode
from dspark_calib.collection.scoring import score_responses
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target_states import TargetForward
from dspark_calib.drafters.loading import load_drafter
from dspark_calib.drafters.target_parts import target_parts

GOLDEN = Path(__file__).resolve().parent.parent / "data" / "deepspec-golden" / "dspark.gsm8k.t0.jsonl"


def as_sequence(decoded: Decoded, name: str) -> ResponseSequence:
    """The decoded response, to be scored."""
    return ResponseSequence(
        dataset="d", domain=None, prompt_id=name, token_ids=decoded.token_ids, prompt_length=decoded.prompt_length,
        ending=decoded.ending,
    )  # fmt: skip


@pytest.mark.parametrize("stop", [[], [7, 11]], ids=["limit", "stop tokens"])
def test_greedy_decoding_is_the_targets_own(stop: list[int]) -> None:
    """Speculation changes no token: the response equals argmax decoding by transformers' generate."""
    pair = make_pair(24, 3, seed=2)
    for first in range(4):
        prompt = [first, 5, 9]
        decoded = decode(
            prompt, pair.target, pair.drafter, temperature=0.0, max_new_tokens=25, stop_tokens=stop,
            rng=np.random.default_rng(0),
        )  # fmt: skip
        own = pair.model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, 3, dtype=torch.long), max_new_tokens=25,
            do_sample=False, eos_token_id=stop or None, pad_token_id=0,
        )  # fmt: skip
        assert list(decoded.token_ids) == own[0].tolist()
        assert decoded.ending == ("eos" if decoded.token_ids[-1] in stop else "length")


@pytest.mark.parametrize("stop", [[], [7, 11]], ids=["limit", "stop tokens"])
def test_greedy_rounds_equal_parallel_scoring(stop: list[int]) -> None:
    """Anchors, drafts, accepted and observed of every round, decoded and scored."""
    pair = make_pair(24, 3, seed=2)
    decoded = [
        decode(
            [first, 5, 9], pair.target, pair.drafter, temperature=0.0, max_new_tokens=25, stop_tokens=stop,
            rng=np.random.default_rng(0),
        )
        for first in range(6)
    ]  # fmt: skip
    scored = score_responses(
        [as_sequence(d, str(i)) for i, d in enumerate(decoded)], pair.target, pair.drafter, temperature=0.0, seed=0
    )
    rounds = [r for d in decoded for r in d.rounds]
    # the loop may open a block at the last token of a cut response; scoring has nothing to judge it by
    rounds = [r for r in rounds if r.observed or r.accepted]
    assert scored.draft_tokens is not None
    assert scored.anchor.tolist() == [r.anchor for r in rounds]
    assert scored.draft_tokens.tolist() == [list(r.draft_tokens) for r in rounds]
    assert scored.accepted.tolist() == [r.accepted for r in rounds]
    assert scored.observed.tolist() == [r.observed for r in rounds]
    np.testing.assert_allclose(scored.confidence_logits, [r.confidence_logits for r in rounds], atol=1e-4)


def test_greedy_equality_on_the_demo_pair(demo_target: Path, demo_drafter: Path) -> None:
    """float32, the real pair: every accepted length and draft token of parallel scoring equals the loop's."""
    model = AutoModelForCausalLM.from_pretrained(demo_target, dtype=torch.float32).eval()
    drafter, _ = load_drafter(str(demo_drafter), target_parts(model, "demo target"))
    target = TargetForward(model, drafter.target_layer_ids)
    records = [json.loads(line) for line in GOLDEN.read_text().splitlines()[:2]]
    decoded = [
        decode(
            r["token_ids"][: r["prompt_length"]], target, drafter, temperature=0.0, max_new_tokens=40, stop_tokens=[2],
            rng=np.random.default_rng(0),
        )
        for r in records
    ]  # fmt: skip
    scored = score_responses(
        [as_sequence(d, str(i)) for i, d in enumerate(decoded)], target, drafter, temperature=0.0, seed=0
    )
    rounds = [r for d in decoded for r in d.rounds if r.observed]
    assert scored.draft_tokens is not None
    assert len(rounds) > 25
    assert scored.anchor.tolist() == [r.anchor for r in rounds]
    assert scored.accepted.tolist() == [r.accepted for r in rounds]
    assert scored.draft_tokens.tolist() == [list(r.draft_tokens) for r in rounds]
    np.testing.assert_allclose(scored.confidence_logits, [r.confidence_logits for r in rounds], atol=1e-3)
