"""speculators' and z-lab's checkpoints, from config and tensors to logits, against literal blocks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from literal_models import LiteralModel, Visible, Weights, random_weights
from torch import Tensor

from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.drafter import IMPOSSIBLE_LOGIT, Drafter
from dspark_calib.drafters.speculators import build_speculators
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.drafters.zlab import build_zlab_dflash
from dspark_calib.errors import CheckpointError, UnsupportedModel

H, V, VD, LAYERS, BLOCK, RANK, MASK, WINDOW = 16, 24, 9, 6, 4, 5, 23, 5
SIZES: dict[str, Any] = {
    "hidden_size": H, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
    "intermediate_size": 20, "target_layer_ids": [-1, 1, 4],
}  # fmt: skip
NESTED: dict[str, Any] = {  # as transformers writes it: rms_norm_eps 1e-6, silu, no bias are defaults and left out
    "model_type": "qwen3", "vocab_size": V, "hidden_size": H, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 20, "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "default", "rope_theta": 300.0},
}  # fmt: skip
SPECULATORS: dict[str, Any] = {
    "architectures": ["DSparkDraftModel"], "speculators_model_type": "dspark", "transformer_layer_config": NESTED,
    "draft_vocab_size": V, "block_size": BLOCK, "aux_hidden_state_layer_ids": [0, 2, 5], "mask_token_id": MASK,
    "sample_from_anchor": True, "markov_rank": RANK, "markov_head_type": "vanilla", "enable_confidence_head": True,
    "confidence_head_with_markov": True,
}  # fmt: skip
ZLAB: dict[str, Any] = NESTED | {
    "architectures": ["DFlashDraftModel"], "auto_map": {"AutoModel": "evil.py"}, "block_size": BLOCK,
    "num_target_layers": LAYERS, "rms_norm_eps": 1e-6,
    "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [-1, 1, 4]},
}  # fmt: skip
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": WINDOW, "use_sliding_window": True}


def make_weights(vocabulary: int = V, bias: bool = True) -> Weights:
    """Backbone and heads; the head's rows and W2 over the draft vocabulary."""
    weights = random_weights(3, SIZES, gemma=False, eagle=False, vocab=V)
    generator = torch.Generator().manual_seed(4)
    weights["lm_head.weight"] = torch.randn(vocabulary, H, generator=generator)
    weights["markov_head.markov_w1.weight"] = torch.randn(V, RANK, generator=generator)
    weights["markov_head.markov_w2.weight"] = torch.randn(vocabulary, RANK, generator=generator)
    weights["confidence_head.proj.weight"] = torch.randn(1, H + RANK, generator=generator)
    if bias:
        weights["confidence_head.proj.bias"] = torch.randn(1, generator=generator)
    return weights


def checkpoint_of(config: dict[str, Any], weights: Weights) -> DrafterCheckpoint:
    """A checkpoint as if read from a folder."""
    return DrafterCheckpoint(
        name="org/drafter", folder=Path("drafter"), config=config, tensors=weights, content_hash="0",
        device=torch.device("cpu"), dtype=torch.float32,
    )  # fmt: skip


def target_of() -> TargetParts:
    """A target these drafters fit, with embeddings and head of its own."""
    generator = torch.Generator().manual_seed(8)
    return TargetParts(
        name="target", hidden_size=H, vocab_size=V, num_layers=LAYERS,
        embed_tokens=torch.randn(V, H, generator=generator), lm_head=torch.randn(V, H, generator=generator),
    )  # fmt: skip


def full(*_: Any) -> bool:
    """Every slot sees all context and its whole block."""
    return True


def speculators_sliding(anchor: int, causal: bool) -> Visible:
    """Context t-W ≤ i < t for every slot; the block causal or not."""
    return lambda slot, other, context: other >= anchor - WINDOW if context else not causal or other <= slot


def zlab_sliding(anchor: int) -> Visible:
    """Distance of positions below W, per slot, in both directions."""
    return lambda slot, other, context: abs(anchor + slot - (other if context else anchor + other)) < WINDOW


def run(drafter: Drafter, visible: Callable[[int], list[Visible]], literal: LiteralModel, skip: int) -> list[Any]:
    """Pairs (step of the drafter, literal state, previous token) of a few blocks."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, V, (2, 12), generator=generator)
    features = torch.randn(2, 11, 3 * H, generator=generator)
    anchors = torch.tensor([[1, 11, 7], [10, 2, 10]])
    drafts = torch.randint(0, V, (2, 3, drafter.gamma), generator=generator)
    drafts[..., 0] = tokens.gather(1, anchors)
    block = drafter.encode(tokens, features).draft(anchors)
    steps = [block.step(k, drafts[..., k]) for k in range(drafter.gamma)]
    pairs = []
    for s, a in [(0, 0), (0, 1), (0, 2), (1, 0)]:
        anchor = int(anchors[s, a])
        inputs = [int(drafts[s, a, 0])] + [MASK] * (BLOCK - 1)
        states = literal.block_states(features[s], anchor, inputs, visible(anchor))[skip:]
        assert len(states) == drafter.gamma
        for k, state in enumerate(states):
            z = steps[k].confidence_logits
            pairs.append((steps[k].logits[s, a], None if z is None else z[s, a], state, int(drafts[s, a, k])))
    return pairs


def literal_of(weights: Weights) -> LiteralModel:
    """The same weights, written out."""
    return LiteralModel(weights, gemma=False, head_dim=6, theta=300.0)


def close(found: Tensor, expected: Tensor) -> None:
    """float32 of two orders of summation."""
    torch.testing.assert_close(found, expected, atol=3e-4, rtol=1e-3)


@pytest.mark.parametrize("from_anchor", [True, False])
@pytest.mark.parametrize("causal", [None, True, False], ids=["full", "sliding", "sliding, not causal"])
def test_speculators_blocks_equal_the_literal_model(from_anchor: bool, causal: bool | None) -> None:
    """Logits and confidence of every draft, whether or not the anchor's slot predicts and layers slide."""
    nested = NESTED if causal is None else NESTED | SLIDING
    changes = {"sample_from_anchor": from_anchor, "transformer_layer_config": nested}
    config = SPECULATORS | changes | ({} if causal is None else {"sliding_window_non_causal": not causal})
    weights = make_weights()
    drafter = build_speculators(checkpoint_of(config, weights), target_of())
    assert drafter.gamma == (BLOCK if from_anchor else BLOCK - 1)
    assert list(drafter.target_layer_ids) == [-1, 1, 4]
    literal = literal_of(weights)
    w1, w2 = weights["markov_head.markov_w1.weight"], weights["markov_head.markov_w2.weight"]
    head, bias = weights["confidence_head.proj.weight"][0], weights["confidence_head.proj.bias"]

    def visible(anchor: int) -> list[Visible]:
        return [full if causal is None else speculators_sliding(anchor, causal), full]

    for logits, z, state, previous in run(drafter, visible, literal, 0 if from_anchor else 1):
        close(logits, literal.logits(state) + w2 @ w1[previous])
        close(z, head @ torch.cat((state, w1[previous])) + bias[0])


def test_a_pruned_vocabulary_is_spread_over_the_targets() -> None:
    """Draft id i is target id i + d2t[i]; every other id has probability 0."""
    kept = torch.tensor([0, 2, 3, 7, 8, 12, 19, 20, 23])
    weights = make_weights(VD, bias=False)
    weights |= {"d2t": kept - torch.arange(VD), "t2d": torch.isin(torch.arange(V), kept)}
    drafter = build_speculators(checkpoint_of(SPECULATORS | {"draft_vocab_size": VD}, weights), target_of())
    assert drafter.vocab_size == V
    literal = literal_of(weights)
    w1, w2 = weights["markov_head.markov_w1.weight"], weights["markov_head.markov_w2.weight"]
    head = weights["confidence_head.proj.weight"][0]
    for logits, z, state, previous in run(drafter, lambda _: [full, full], literal, 0):
        expected = torch.full((V,), IMPOSSIBLE_LOGIT)
        expected[kept] = literal.logits(state) + w2 @ w1[previous]
        close(logits, expected)
        close(z, head @ torch.cat((state, w1[previous])))  # this export's head has no bias
        assert logits.softmax(-1)[~torch.isin(torch.arange(V), kept)].sum() == 0


def test_missing_embeddings_and_head_are_the_targets() -> None:
    """Without embed_tokens and lm_head the drafter uses the target's, the head's rows at the kept ids."""
    kept, target = torch.arange(2, 2 + VD), target_of()
    weights = make_weights(VD)
    weights |= {"d2t": kept - torch.arange(VD)}
    borrowed = {"embed_tokens.weight": target.embed_tokens, "lm_head.weight": target.lm_head[kept]}
    bare = {name: tensor for name, tensor in weights.items() if name not in borrowed}
    config = SPECULATORS | {"draft_vocab_size": VD}
    drafter = build_speculators(checkpoint_of(config, bare), target)
    same = build_speculators(checkpoint_of(config, bare | borrowed), target)
    tokens, features, anchors = torch.arange(8)[None], torch.randn(1, 7, 3 * H), torch.tensor([[4]])
    steps = [d.encode(tokens, features).draft(anchors).step(0, anchors).logits for d in (drafter, same)]
    assert torch.equal(*steps)


def test_speculators_dflash_has_no_heads() -> None:
    """A dflash export drafts block_size - 1 tokens by default and carries no confidence."""
    config = {
        k: v for k, v in SPECULATORS.items() if "markov" not in k and "head" not in k and k != "sample_from_anchor"
    }
    weights = make_weights()
    drafter = build_speculators(checkpoint_of(config | {"speculators_model_type": "dflash"}, weights), target_of())
    assert (drafter.gamma, drafter.has_confidence_head) == (BLOCK - 1, False)
    literal = literal_of(weights)
    for logits, z, state, _ in run(drafter, lambda _: [full, full], literal, 1):
        close(logits, literal.logits(state))
        assert z is None


@pytest.mark.parametrize("sliding", [False, True])
def test_zlab_blocks_equal_the_literal_model(sliding: bool) -> None:
    """γ = block - 1, embeddings and head of the target, and z-lab's own rule for sliding layers."""
    weights, target = make_weights(), target_of()
    bare = {name: tensor for name, tensor in weights.items() if name not in ("embed_tokens.weight", "lm_head.weight")}
    drafter = build_zlab_dflash(checkpoint_of(ZLAB | (SLIDING if sliding else {}), bare), target)
    assert (drafter.gamma, drafter.has_confidence_head) == (BLOCK - 1, False)
    literal = literal_of(bare | {"embed_tokens.weight": target.embed_tokens, "lm_head.weight": target.lm_head})
    for logits, _, state, _ in run(drafter, lambda t: [zlab_sliding(t) if sliding else full, full], literal, 1):
        close(logits, literal.logits(state))


@pytest.mark.parametrize(
    ("option", "change"),
    [
        ({"output_multiplier": 0.5}, lambda logits: logits * 0.5),
        ({"final_logit_softcapping": 2.0}, lambda logits: 2 * torch.tanh(logits / 2)),
    ],
)
def test_zlab_scales_and_caps(option: dict[str, float], change: Callable[[Tensor], Tensor]) -> None:
    """output_multiplier and final_logit_softcapping act on the logits; block_size may lie in dflash_config too."""
    weights = make_weights()
    plain = build_zlab_dflash(checkpoint_of(ZLAB, weights), target_of())
    config = {name: value for name, value in ZLAB.items() if name != "block_size"}
    config["dflash_config"] = ZLAB["dflash_config"] | option | {"block_size": BLOCK}
    changed = build_zlab_dflash(checkpoint_of(config, weights), target_of())
    tokens, features, anchors = torch.arange(8)[None], torch.randn(1, 7, 3 * H), torch.tensor([[4]])
    first, second = (d.encode(tokens, features).draft(anchors).step(0, anchors).logits for d in (plain, changed))
    close(second, change(first))


def test_zlab_scales_input_embeddings() -> None:
    """input_embedding_scale multiplies the embeddings of the block."""
    weights, target = make_weights(), target_of()
    config = ZLAB | {"dflash_config": ZLAB["dflash_config"] | {"input_embedding_scale": 3.0}}
    drafter = build_zlab_dflash(checkpoint_of(config, weights), target)
    literal = literal_of(weights | {"embed_tokens.weight": weights["embed_tokens.weight"] * 3})
    for logits, _, state, _ in run(drafter, lambda _: [full, full], literal, 1):
        close(logits, literal.logits(state))


def without(config: dict[str, Any], name: str) -> dict[str, Any]:
    """The config with one field left out."""
    return {key: value for key, value in config.items() if key != name}


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        (without(SPECULATORS, "sample_from_anchor"), CheckpointError, r"'org/drafter,sample-from-anchor=true'"),
        (without(SPECULATORS, "transformer_layer_config"), CheckpointError, "transformer_layer_config"),
        (without(SPECULATORS, "aux_hidden_state_layer_ids"), CheckpointError, "aux_hidden_state_layer_ids"),
        (SPECULATORS | {"aux_hidden_state_layer_ids": [0, 6]}, CheckpointError, "holds 5"),
        (SPECULATORS | {"speculators_model_type": "peagle"}, UnsupportedModel, "peagle"),
        (SPECULATORS | {"draft_vocab_size": VD}, CheckpointError, "d2t"),
        (SPECULATORS | {"transformer_layer_config": NESTED | {"model_type": "nonesuch"}}, UnsupportedModel, "nonesuch"),
        (SPECULATORS | {"transformer_layer_config": NESTED | {"hidden_size": 8}}, CheckpointError, "hidden_size = 8"),
        (SPECULATORS | {"sample_from_anchor": "yes"}, CheckpointError, "sample_from_anchor"),
    ],
)  # fmt: skip
def test_what_speculators_leaves_open_is_asked(config: dict[str, Any], error: type[Exception], says: str) -> None:
    """A field that is missing, foreign to the target or of another algorithm is named, with what to do."""
    with pytest.raises(error, match=says):
        build_speculators(checkpoint_of(config, make_weights()), target_of())


def test_an_undefined_recurrent_start_is_refused() -> None:
    """An rnn head over blocks whose first slot is unused has no defined first state."""
    weights = make_weights()
    weights["markov_head.joint_proj.weight"] = torch.zeros(3 * RANK, 2 * RANK + H)
    weights["markov_head.joint_proj.bias"] = torch.zeros(3 * RANK)
    config = SPECULATORS | {"markov_head_type": "rnn", "sample_from_anchor": False}
    with pytest.raises(UnsupportedModel, match="rnn"):
        build_speculators(checkpoint_of(config, weights), target_of())


@pytest.mark.parametrize(
    ("d2t", "t2d"),
    [
        (torch.zeros(VD - 1, dtype=torch.long), None),
        (torch.full((VD,), V), None),
        (-torch.arange(VD), None),
        (torch.zeros(VD), None),
        (torch.zeros(VD, dtype=torch.long), torch.arange(V) >= V - VD),
    ],
    ids=["too short", "outside", "repeated", "not whole", "contradicts t2d"],
)
def test_a_broken_vocabulary_map_is_refused(d2t: Tensor, t2d: Tensor | None) -> None:
    """d2t that does not name Vd different target ids, or that t2d contradicts, is an error that names the tensor."""
    weights = make_weights(VD) | {"d2t": d2t} | ({} if t2d is None else {"t2d": t2d})
    with pytest.raises(CheckpointError, match=r"tensor [dt]2[dt]"):
        build_speculators(checkpoint_of(SPECULATORS | {"draft_vocab_size": VD}, weights), target_of())


@pytest.mark.parametrize(
    ("config", "error", "says"),
    [
        (without(ZLAB, "dflash_config"), CheckpointError, "dflash_config"),
        (ZLAB | {"dflash_config": {"mask_token_id": MASK}}, CheckpointError, r"dflash_config\.target_layer_ids"),
        (ZLAB | {"dflash_config": {"target_layer_ids": [1]}}, CheckpointError, r"dflash_config\.mask_token_id"),
        (ZLAB | {"num_target_layers": LAYERS + 1}, CheckpointError, "num_target_layers"),
        (ZLAB | {"block_size": 1}, CheckpointError, "block_size"),
        (ZLAB | SLIDING | {"sliding_window": None}, CheckpointError, "sliding_window"),
        (
            ZLAB | {"dflash_config": ZLAB["dflash_config"] | {"output_multiplier": 2, "final_logit_softcapping": 3}},
            UnsupportedModel, "output_multiplier",
        ),
    ],
)  # fmt: skip
def test_what_zlab_leaves_open_is_named(config: dict[str, Any], error: type[Exception], says: str) -> None:
    """A field that is missing or foreign to the target is named."""
    with pytest.raises(error, match=says):
        build_zlab_dflash(checkpoint_of(config, make_weights()), target_of())
