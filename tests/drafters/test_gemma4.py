"""The Gemma4 backbone of DSpark and DFlash against a literal block, slot by slot."""

from pathlib import Path
from typing import Any

import pytest
import torch
from literal_models import LiteralModel, Weights, random_weights
from transformers.models.gemma4.configuration_gemma4 import Gemma4TextConfig
from transformers.models.gemma4.modeling_gemma4 import Gemma4TextRotaryEmbedding

from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.gemma4_weights import build_gemma4_dspark, read_gemma4_rope, read_gemma4_shape
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.errors import CheckpointError, UnsupportedModel

H, V, LAYERS, GAMMA, RANK, MASK = 16, 24, 6, 4, 5, 23
CONFIG: dict[str, Any] = {
    "architectures": ["Gemma4DSparkModel"], "hidden_size": H, "vocab_size": V, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_global_key_value_heads": 1, "head_dim": 4,
    "global_head_dim": 8, "attention_k_eq_v": True, "intermediate_size": 20, "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh", "enable_moe_block": False, "hidden_size_per_layer_input": 0,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 300.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
    },
    "layer_types": ["full_attention", "full_attention"], "final_logit_softcapping": 2.5,
    "target_layer_ids": [-1, 1, 4], "num_target_layers": LAYERS, "block_size": GAMMA, "mask_token_id": MASK,
    "markov_rank": RANK, "markov_head_type": "vanilla", "enable_confidence_head": True,
    "confidence_head_with_markov": True, "tie_word_embeddings": False,
}  # fmt: skip


def make_weights(config: dict[str, Any]) -> Weights:
    """Backbone and heads."""
    weights = random_weights(3, config, gemma=True, eagle=False, vocab=V)
    generator = torch.Generator().manual_seed(4)
    weights["markov_head.markov_w1.weight"] = torch.randn(V, RANK, generator=generator)
    weights["markov_head.markov_w2.weight"] = torch.randn(V, RANK, generator=generator)
    weights["confidence_head.proj.weight"] = torch.randn(1, H + RANK, generator=generator)
    weights["confidence_head.proj.bias"] = torch.randn(1, generator=generator)
    return weights


def checkpoint_of(config: dict[str, Any], weights: Weights) -> DrafterCheckpoint:
    """A checkpoint as if read from a folder."""
    return DrafterCheckpoint(
        name="drafter", folder=Path("drafter"), config=config, tensors=weights, content_hash="0",
        device=torch.device("cpu"), dtype=torch.float32,
    )  # fmt: skip


TARGET = TargetParts(
    name="target", hidden_size=H, vocab_size=V, num_layers=LAYERS, embed_tokens=torch.zeros(V, H),
    lm_head=torch.zeros(V, H),
)  # fmt: skip


@pytest.mark.parametrize("shared", [True, False], ids=["keys are values", "own values"])
def test_blocks_equal_the_literal_model(shared: bool) -> None:
    """Logits and confidence of every slot equal those of the block written out by hand."""
    config = CONFIG | {"attention_k_eq_v": shared}
    weights = make_weights(config)
    drafter = build_gemma4_dspark(checkpoint_of(config, weights), TARGET)
    literal = LiteralModel(weights, gemma=True, head_dim=8, theta=300.0, rotated=0.5, cap=2.5)
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, V, (2, 8), generator=generator)
    features = torch.randn(2, 7, 3 * H, generator=generator)
    anchors = torch.tensor([[1, 5, 7], [6, 2, 6]])
    drafts = torch.cat((tokens.gather(1, anchors)[..., None], torch.randint(0, V, (2, 3, GAMMA - 1))), dim=-1)
    block = drafter.encode(tokens, features).draft(anchors)
    steps = [block.step(k, drafts[..., k]) for k in range(GAMMA)]
    w1, w2 = weights["markov_head.markov_w1.weight"], weights["markov_head.markov_w2.weight"]
    head, bias = weights["confidence_head.proj.weight"][0], weights["confidence_head.proj.bias"]
    for s, a in [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2)]:
        inputs = [int(drafts[s, a, 0])] + [MASK] * (GAMMA - 1)
        states = literal.block_states(features[s], int(anchors[s, a]), inputs, [lambda *_: True] * 2)
        for k, state in enumerate(states):
            before = w1[drafts[s, a, k]]
            torch.testing.assert_close(steps[k].logits[s, a], literal.logits(state) + w2 @ before, atol=2e-4, rtol=1e-3)
            z = steps[k].confidence_logits
            assert z is not None
            torch.testing.assert_close(z[s, a], head @ torch.cat((state, before)) + bias[0], atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0])
def test_partial_rope_is_that_of_transformers(factor: float) -> None:
    """Inverse frequencies of global attention equal those transformers computes for the same config."""
    full = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": factor}
    config = CONFIG | {"global_head_dim": 16, "rope_parameters": {"full_attention": full}}
    checkpoint = checkpoint_of(config, {})
    theirs = Gemma4TextRotaryEmbedding(
        Gemma4TextConfig(
            hidden_size=H, num_attention_heads=4, head_dim=4, global_head_dim=16, num_hidden_layers=1,
            layer_types=["full_attention"], rope_parameters={"full_attention": full, "sliding_attention": None},
        )
    )  # fmt: skip
    ours = read_gemma4_rope(checkpoint, read_gemma4_shape(checkpoint, TARGET))
    torch.testing.assert_close(ours, theirs.full_attention_inv_freq)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"enable_moe_block": True}, UnsupportedModel, "enable_moe_block"),
        ({"hidden_size_per_layer_input": 256}, UnsupportedModel, "hidden_size_per_layer_input"),
        ({"hidden_activation": "silu"}, UnsupportedModel, "hidden_activation"),
        ({"layer_types": ["sliding_attention"] * 2}, UnsupportedModel, "layer_types"),
        ({"rope_parameters": None}, CheckpointError, "rope_parameters"),
        ({"global_head_dim": None}, CheckpointError, "global_head_dim"),
        ({"num_global_key_value_heads": 3}, CheckpointError, "num_attention_heads"),
        ({"mask_token_id": V}, CheckpointError, "mask_token_id"),
        ({"hidden_size": H + 1}, CheckpointError, "hidden_size"),
        ({"final_logit_softcapping": -1.0}, CheckpointError, "final_logit_softcapping"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], error: type[Exception], says: str) -> None:
    """A config outside DeepSpec's layout, or of another target, is refused by field."""
    with pytest.raises(error, match=says):
        build_gemma4_dspark(checkpoint_of(CONFIG | changes, make_weights(CONFIG)), TARGET)
