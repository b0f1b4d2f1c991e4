"""Every family on the demo target: parallel scoring finds the rounds that its decoding loop decoded.

No trained checkpoint of these families exists for this target, so weights are random, but the vocabulary
projection is fitted to remember some continuations of the response: then drafts are accepted and rejected in
turn, as they would be with a trained drafter.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from literal_models import random_weights
from torch import Tensor

from dspark_calib.collection.decoding_loop import Decoded, decode
from dspark_calib.collection.scoring import score_responses
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target_states import TargetForward
from dspark_calib.drafters.causal_lm import CausalLMDrafter, check_tree_steps
from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.drafter import Drafter
from dspark_calib.drafters.loading import BUILDERS
from dspark_calib.drafters.ngram import NgramDrafter
from dspark_calib.drafters.speculators import build_speculators
from dspark_calib.drafters.target_parts import TargetParts, target_parts

RESPONSE, GAMMA, SLOTS = 32, 4, 5
TEXT = "Copy this line three times: the cat sat on the mat and the dog sat on the cat."
SIZES: dict[str, Any] = {
    "num_hidden_layers": 1, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
    "global_head_dim": 16, "num_global_key_value_heads": 2, "intermediate_size": 64, "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "mask_token_id": 4, "markov_rank": 0,
    "enable_confidence_head": False, "target_layer_ids": [1, 7, 14, 21, 27], "ttt_length": GAMMA,
}  # fmt: skip
GEMMA: dict[str, Any] = {
    "attention_k_eq_v": True, "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The demo target, a prompt, and what it answers greedily.

    Attributes:
        model: The target, float32.
        parts: What drafters borrow.
        prompt: Token ids.
        text: Prompt and greedy response by transformers' own generate.
        stop_tokens: Of the target.
    """

    model: Any
    parts: TargetParts
    prompt: list[int]
    text: list[int]
    stop_tokens: tuple[int, ...]


@pytest.fixture(scope="module")
def demo(demo_target: Path) -> Demo:
    """Load it once."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(demo_target, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(demo_target)
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": TEXT}], tokenize=False, add_generation_prompt=True
    )
    prompt = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    text = model.generate(torch.tensor([prompt]), max_new_tokens=RESPONSE, do_sample=False)[0].tolist()
    parts = target_parts(model, "demo")
    return Demo(model=model, parts=parts, prompt=prompt, text=text, stop_tokens=parts.stop_tokens)


def checkpoint_of(demo: Demo, changes: dict[str, Any], *, gemma: bool, eagle: bool, rows: int) -> DrafterCheckpoint:
    """Random weights in DeepSpec's layout, embeddings left out, the head with this many rows."""
    sizes = {"hidden_size": demo.parts.hidden_size, "vocab_size": demo.parts.vocab_size}
    config = SIZES | sizes | {"num_target_layers": demo.parts.num_layers} | (GEMMA if gemma else {}) | changes
    weights = random_weights(3, config, gemma=gemma, eagle=eagle, vocab=2)
    del weights["embed_tokens.weight"]
    weights["lm_head.weight"] = torch.zeros(rows, demo.parts.hidden_size)
    return DrafterCheckpoint(
        name="random", folder=Path("random"), config=config, tensors=weights, content_hash="0",
        device=torch.device("cpu"), dtype=torch.float32,
    )  # fmt: skip


def with_head(drafter: Any, head: Tensor) -> Any:
    """The drafter with another vocabulary projection, wherever it keeps it."""
    if hasattr(drafter, "lm_head"):
        return replace(drafter, lm_head=head)
    inner = "backbone" if hasattr(drafter, "backbone") else "inner"
    return replace(drafter, **{inner: with_head(getattr(drafter, inner), head)})


def remembering(demo: Demo, drafter: Any, kept: list[int] | None = None) -> Any:
    """Fit the head so that most slots of two in three anchors draft what the target writes next."""
    states, tokens = [], []
    body = drafter.inner if kept is not None else drafter
    blank = with_head(body, torch.eye(demo.parts.hidden_size))
    text = torch.tensor([demo.text])
    target = TargetForward(demo.model, drafter.target_layer_ids)
    anchors = [t for t in range(len(demo.prompt), len(demo.text) - drafter.gamma - 1) if t % 3]
    with torch.no_grad():
        block = blank.encode(text, target.run(text[:, :-1]).features).draft(torch.tensor([anchors]))
        for slot in range(drafter.gamma):
            logits = block.step(slot, text[:, [t + slot for t in anchors]]).logits[0]
            states += [state for i, state in enumerate(logits) if (i + slot) % 4]
            tokens += [demo.text[t + slot + 1] for i, t in enumerate(anchors) if (i + slot) % 4]
    ids = kept if kept is not None else range(demo.parts.vocab_size)
    rows = {token: row for row, token in enumerate(ids)}
    known = [i for i, token in enumerate(tokens) if token in rows]
    wanted = sorted({tokens[i] for i in known})
    onehot = torch.zeros(len(known), len(wanted))
    onehot[range(len(known)), [wanted.index(tokens[i]) for i in known]] = 1.0
    head = torch.randn(len(ids), demo.parts.hidden_size, generator=torch.Generator().manual_seed(1)) * 1e-3
    fitted = torch.linalg.lstsq(torch.stack([states[i] for i in known]), onehot).solution
    head[[rows[token] for token in wanted]] += fitted.T
    fitted_body = with_head(body, head)
    return fitted_body if kept is None else replace(drafter, inner=fitted_body)


def from_builder(architecture: str, changes: dict[str, Any], **kind: bool) -> Callable[[Demo], Drafter]:
    """A drafter of one DeepSpec or z-lab architecture."""

    def make(demo: Demo) -> Drafter:
        checkpoint = checkpoint_of(demo, changes, rows=demo.parts.vocab_size, **kind)  # type: ignore[misc]
        drafter: Drafter = remembering(demo, BUILDERS[architecture](checkpoint, demo.parts))
        return drafter

    return make


def speculators(demo: Demo) -> Drafter:
    """A pruned vocabulary without every fifth token id."""
    kept = [i for i in range(demo.parts.vocab_size) if i % 5]
    checkpoint = checkpoint_of(demo, {}, gemma=False, eagle=False, rows=len(kept))
    config = {
        "speculators_model_type": "dspark", "draft_vocab_size": len(kept), "block_size": SLOTS, "mask_token_id": 4,
        "transformer_layer_config": {**checkpoint.config, "model_type": "qwen3"}, "sample_from_anchor": False,
        "aux_hidden_state_layer_ids": [i + 1 for i in SIZES["target_layer_ids"]], "markov_rank": 0,
        "enable_confidence_head": False,
    }  # fmt: skip
    tensors = dict(checkpoint.tensors) | {"d2t": torch.tensor(kept) - torch.arange(len(kept))}
    drafter: Drafter = build_speculators(replace(checkpoint, config=config, tensors=tensors), demo.parts)
    return remembering(demo, drafter, kept)  # type: ignore[no-any-return]


def causal_lm(demo: Demo) -> Drafter:
    """The target itself without some of its layers: independent weights, the same tokenizer."""
    model = copy.deepcopy(demo.model)
    model.model.layers = torch.nn.ModuleList(
        layer for i, layer in enumerate(model.model.layers) if i not in (12, 16, 20)
    )
    for i, layer in enumerate(model.model.layers):
        layer.self_attn.layer_idx = i
    model.config.num_hidden_layers = len(model.model.layers)
    drafter = CausalLMDrafter(model, gamma=GAMMA, vocab_size=demo.parts.vocab_size)
    check_tree_steps(drafter, "shortened")
    return drafter


ZLAB = {"block_size": SLOTS, "dflash_config": {"mask_token_id": 4, "target_layer_ids": SIZES["target_layer_ids"]}}
FAMILIES: dict[str, Callable[[Demo], Drafter]] = {
    "eagle3 qwen3": from_builder("Qwen3Eagle3Model", {}, gemma=False, eagle=True),
    "eagle3 gemma4": from_builder("Gemma4Eagle3Model", {}, gemma=True, eagle=True),
    "dflash gemma4": from_builder("Gemma4DSparkModel", {"block_size": GAMMA}, gemma=True, eagle=False),
    "z-lab dflash": from_builder("DFlashDraftModel", ZLAB, gemma=False, eagle=False),
    "speculators, pruned": speculators,
    "causal LM": causal_lm,
    "ngram": lambda demo: NgramDrafter(vocab_size=demo.parts.vocab_size, gamma=GAMMA, max_ngram=2),
}


def assert_same_rounds(decoded: Decoded, demo: Demo, drafter: Drafter) -> list[int]:
    """Score the decoded response and compare every round; returns the accepted lengths."""
    sequence = ResponseSequence(
        dataset="d", domain=None, prompt_id="p", token_ids=decoded.token_ids, prompt_length=decoded.prompt_length,
        ending=decoded.ending,
    )  # fmt: skip
    target = TargetForward(demo.model, drafter.target_layer_ids)
    rounds = score_responses([sequence], target, drafter, temperature=0.0, seed=0, confidence="draft-prob")
    found = [r for r in decoded.rounds if r.anchor < len(decoded.token_ids) - 1]
    assert rounds.anchor.tolist() == [r.anchor for r in found]
    assert rounds.accepted.tolist() == [r.accepted for r in found]
    assert rounds.verified.tolist() == [len(r.draft_tokens) for r in found]
    assert rounds.observed.tolist() == [r.observed for r in found]
    assert rounds.draft_tokens is not None
    drafts = [row[:n].tolist() for row, n in zip(rounds.draft_tokens, rounds.verified, strict=True)]
    assert drafts == [list(r.draft_tokens) for r in found]
    assert np.isfinite(rounds.confidence_logits).all()
    return [r.accepted for r in found]


@pytest.mark.parametrize("name", list(FAMILIES))
def test_parallel_scoring_equals_the_decoding_loop(name: str, demo: Demo) -> None:
    """Greedy, float32: every anchor, draft token, accepted and observed length; and decoding is lossless."""
    drafter = FAMILIES[name](demo)
    decoded = decode(
        demo.prompt, TargetForward(demo.model, drafter.target_layer_ids), drafter, temperature=0.0,
        max_new_tokens=RESPONSE, stop_tokens=demo.stop_tokens, rng=np.random.default_rng(0),
    )  # fmt: skip
    assert list(decoded.token_ids) == demo.text
    accepted = assert_same_rounds(decoded, demo, drafter)
    assert len(set(accepted)) > 1, "drafts of both fates are needed for the comparison to say something"
