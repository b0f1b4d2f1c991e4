"""Eagle3: chains over all anchors at once give what one chain at a time, written literally, gives."""

from pathlib import Path
from typing import Any

import pytest
import torch
from literal_models import LiteralModel, Weights, random_weights

from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.eagle3 import Eagle3Drafter
from dspark_calib.drafters.eagle3_weights import build_gemma4_eagle3, build_qwen3_eagle3
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.errors import CheckpointError, UnsupportedModel

H, V, LAYERS, GAMMA = 16, 24, 8, 4
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3Eagle3Model"], "hidden_size": H, "vocab_size": V, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 20, "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "attention_bias": False,
    "target_layer_ids": [0, 1, 3, 4, 6], "num_target_layers": LAYERS, "ttt_length": GAMMA,
}  # fmt: skip
GEMMA4: dict[str, Any] = QWEN3 | {
    "architectures": ["Gemma4Eagle3Model"], "head_dim": 4, "global_head_dim": 8, "num_global_key_value_heads": 1,
    "attention_k_eq_v": True, "hidden_activation": "gelu_pytorch_tanh", "final_logit_softcapping": 3.0,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10.0},
    },
}  # fmt: skip
CONFIGS = {"qwen3": QWEN3, "gemma4": GEMMA4, "gemma4 with its own values": GEMMA4 | {"attention_k_eq_v": False}}


def make_pair(name: str, stop_tokens: tuple[int, ...] = (), **changes: Any) -> tuple[Eagle3Drafter, LiteralModel]:
    """A random drafter, and the same weights written out."""
    config, gemma = CONFIGS[name] | changes, name != "qwen3"
    weights = random_weights(7, config, gemma=gemma, eagle=True, vocab=V)
    build = build_gemma4_eagle3 if gemma else build_qwen3_eagle3
    sizes: dict[str, Any] = {"head_dim": 8, "theta": 500.0, "rotated": 0.5, "cap": 3.0}
    literal = LiteralModel(weights, gemma=gemma, **(sizes if gemma else {"head_dim": 6, "theta": 500.0}))
    return build(checkpoint_of(config, weights), target_of(stop_tokens)), literal


def checkpoint_of(config: dict[str, Any], weights: Weights) -> DrafterCheckpoint:
    """A checkpoint as if read from a folder."""
    return DrafterCheckpoint(
        name="drafter", folder=Path("drafter"), config=config, tensors=weights, content_hash="0",
        device=torch.device("cpu"), dtype=torch.float32,
    )  # fmt: skip


def target_of(stop_tokens: tuple[int, ...] = ()) -> TargetParts:
    """A target these drafters fit."""
    return TargetParts(
        name="target", hidden_size=H, vocab_size=V, num_layers=LAYERS, embed_tokens=torch.zeros(V, H),
        lm_head=torch.zeros(V, H), stop_tokens=stop_tokens,
    )  # fmt: skip


def make_text(rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens [S, T] and features [S, T-1, F]."""
    generator = torch.Generator().manual_seed(11)
    tokens = torch.randint(0, V, (rows, length), generator=generator)
    return tokens, torch.randn(rows, length - 1, 5 * H, generator=generator)


@pytest.mark.parametrize("name", list(CONFIGS))
def test_all_chains_at_once_equal_one_chain_at_a_time(name: str) -> None:
    """Logits of every slot equal the literal chain's, for every anchor, padding and other rows notwithstanding."""
    drafter, literal = make_pair(name)
    tokens, features = make_text(2, 9)
    anchors = torch.tensor([[1, 4, 8, 4], [7, 2, 1, 8]])
    drafts = torch.randint(0, V, (2, 4, GAMMA - 1), generator=torch.Generator().manual_seed(3))
    block = drafter.encode(tokens, features).draft(anchors)
    previous = torch.cat((tokens.gather(1, anchors)[..., None], drafts), dim=-1)
    found = torch.stack([block.step(k, previous[..., k]).logits for k in range(GAMMA)], dim=2)
    for s in range(2):
        for a, anchor in enumerate(anchors[s].tolist()):
            text = tokens[s, : anchor + 1].tolist()
            expected = torch.stack(literal.chain_logits(text, features[s], anchor, drafts[s, a].tolist()))
            torch.testing.assert_close(found[s, a], expected, atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["qwen3", "gemma4"])
def test_append_and_take_continue_the_entries(name: str) -> None:
    """Reading in pieces and keeping some sequences gives the logits of reading those sequences at once."""
    drafter, _ = make_pair(name)
    tokens, features = make_text(3, 12)
    rows, anchors = torch.tensor([2, 0]), torch.tensor([[11, 3], [10, 6]])
    context = drafter.encode(tokens[:, :5], features[:, :4])
    context.append(tokens[:, 5:6], features[:, 4:5])
    context = context.take(rows)
    context.append(tokens[rows, 6:], features[rows, 5:])
    pieces, whole = context.draft(anchors), drafter.encode(tokens[rows], features[rows]).draft(anchors)
    for slot in range(GAMMA):
        previous = tokens[rows].gather(1, anchors) + slot
        expected = whole.step(slot, previous % V).logits
        torch.testing.assert_close(pieces.step(slot, previous % V).logits, expected, atol=1e-4, rtol=1e-4)


def test_a_block_ends_after_a_drafted_stop_token() -> None:
    """DeepSpec drafts nothing after a drafted stop token; a stop token as anchor ends nothing."""
    drafter, _ = make_pair("qwen3", stop_tokens=(5, 9))
    tokens, features = make_text(1, 6)
    block = drafter.encode(tokens, features).draft(torch.tensor([[2, 3, 4]]))
    fed = [[5, 5, 5], [9, 1, 1], [1, 5, 1], [1, 1, 1]]  # the anchors, then three drafts of each block
    offered = [block.step(k, torch.tensor([row])).drafted for k, row in enumerate(fed)]
    assert [step.tolist() for step in offered if step is not None] == [
        [[True, True, True]],
        [[False, True, True]],
        [[False, False, True]],
        [[False, False, True]],
    ]


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"target_layer_ids": [0, 1, 3, 4]}, CheckpointError, "target_layer_ids"),
        ({"target_layer_ids": [0, 1, 3, 4, 7]}, CheckpointError, "target_layer_ids holds 7"),
        ({"target_layer_ids": [-1, 1, 3, 4, 6]}, CheckpointError, "target_layer_ids"),
        ({"num_hidden_layers": 2}, UnsupportedModel, "num_hidden_layers = 2"),
        ({"ttt_length": 0}, CheckpointError, "ttt_length"),
        ({"vocab_size": V + 1}, CheckpointError, "vocab_size"),
        ({"hidden_act": "gelu"}, UnsupportedModel, "hidden_act"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], error: type[Exception], says: str) -> None:
    """A config the layout or the target does not allow is refused by field."""
    weights = random_weights(7, QWEN3, gemma=False, eagle=True, vocab=V)
    with pytest.raises(error, match=says):
        build_qwen3_eagle3(checkpoint_of(QWEN3 | changes, weights), target_of())
