"""DSpark and DFlash of Qwen3 shape against a literal block and literal heads, slot by slot."""

from pathlib import Path
from typing import Any

import pytest
import torch
from literal_models import LiteralModel, Weights, random_weights
from torch import Tensor

from dspark_calib.drafters import attention
from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.dspark import DSparkDrafter, build_qwen3_dspark
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.errors import CheckpointError, UnsupportedModel

H, V, LAYERS, GAMMA, RANK, MASK, THETA = 16, 24, 6, 4, 5, 23, 300.0
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3DSparkModel"], "hidden_size": H, "vocab_size": V, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 20,
    "rms_norm_eps": 1e-6, "attention_bias": False, "hidden_act": "silu", "rope_parameters": {"rope_theta": THETA,
    "rope_type": "default"}, "layer_types": ["full_attention", "full_attention"], "target_layer_ids": [-1, 1, 4],
    "num_target_layers": LAYERS, "block_size": GAMMA, "mask_token_id": MASK, "markov_rank": RANK,
    "markov_head_type": "vanilla", "enable_confidence_head": True, "confidence_head_with_markov": True,
    "tie_word_embeddings": False, "max_position_embeddings": 64,
}  # fmt: skip
TARGET = TargetParts(
    name="target", hidden_size=H, vocab_size=V, num_layers=LAYERS, embed_tokens=torch.ones(V, H),
    lm_head=torch.ones(V, H),
)  # fmt: skip


def make_weights(config: dict[str, Any]) -> Weights:
    """Backbone, every kind of Markov head, confidence head."""
    weights = random_weights(3, config, gemma=False, eagle=False, vocab=V)
    generator = torch.Generator().manual_seed(4)

    def make(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    weights |= {f"markov_head.markov_{w}.weight": make(V, RANK) for w in ("w1", "w2")}
    weights |= {"markov_head.gate_proj.weight": make(RANK, H + RANK), "markov_head.gate_proj.bias": make(RANK)}
    weights |= {
        "markov_head.joint_proj.weight": make(3 * RANK, 2 * RANK + H),
        "markov_head.joint_proj.bias": make(3 * RANK),
    }
    width = H + (RANK if config.get("confidence_head_with_markov") else 0)
    weights |= {"confidence_head.proj.weight": make(1, width), "confidence_head.proj.bias": make(1)}
    if config["attention_bias"]:
        rows = {"q": 24, "k": 12, "v": 12, "o": H}
        weights |= {f"layers.{i}.self_attn.{x}_proj.bias": make(n) for i in range(2) for x, n in rows.items()}
    return weights


def checkpoint_of(config: dict[str, Any], weights: Weights) -> DrafterCheckpoint:
    """A checkpoint as if read from a folder."""
    return DrafterCheckpoint(
        name="drafter", folder=Path("drafter"), config=config, tensors=weights, content_hash="0",
        device=torch.device("cpu"), dtype=torch.float32,
    )  # fmt: skip


def build(config: dict[str, Any]) -> tuple[DSparkDrafter, Weights]:
    """A drafter and the weights it was made of."""
    weights = make_weights(config)
    return build_qwen3_dspark(checkpoint_of(config, weights), TARGET), weights


def literal_steps(
    weights: Weights, config: dict[str, Any], features: Tensor, anchor: int, previous: list[int]
) -> tuple[list[Tensor], list[Tensor]]:
    """Logits and confidence logits of one block, one vector at a time, from the published formulas."""
    model = LiteralModel(weights, gemma=False, head_dim=config["head_dim"], theta=THETA)
    see_all = lambda *_: True  # noqa: E731
    states = model.block_states(features, anchor, [previous[0]] + [MASK] * (GAMMA - 1), [see_all, see_all])
    memory, logits, confidences = torch.zeros(RANK), [], []
    for h, token in zip(states, previous, strict=True):
        base, seen = model.logits(h), h
        if config["markov_rank"]:
            e = weights["markov_head.markov_w1.weight"][token]
            vector = e
            if config["markov_head_type"] == "gated":
                joined = torch.cat((h, e))
                gate = weights["markov_head.gate_proj.weight"] @ joined + weights["markov_head.gate_proj.bias"]
                vector = e / (1 + torch.exp(-gate))
            elif config["markov_head_type"] == "rnn":
                joined = torch.cat((memory, e, h))
                z = weights["markov_head.joint_proj.weight"] @ joined + weights["markov_head.joint_proj.bias"]
                gate = 1 / (1 + torch.exp(-z[:RANK]))
                memory = gate * memory + (1 - gate) * torch.tanh(z[RANK : 2 * RANK])
                vector = torch.tanh(z[2 * RANK :])
            base = base + weights["markov_head.markov_w2.weight"] @ vector
            seen = torch.cat((h, e)) if config["confidence_head_with_markov"] else h
        logits.append(base)
        if config["enable_confidence_head"]:
            confidences.append(weights["confidence_head.proj.weight"][0] @ seen + weights["confidence_head.proj.bias"])
    return logits, confidences


VARIANTS = {
    "vanilla": {},
    "gated": {"markov_head_type": "gated"},
    "rnn": {"markov_head_type": "rnn"},
    "confidence without markov": {"confidence_head_with_markov": False},
    "DFlash": {"markov_rank": 0, "enable_confidence_head": False},
    "biased attention": {"attention_bias": True},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_blocks_equal_the_literal_model(changes: dict[str, Any]) -> None:
    """Logits and confidence of every slot of every anchor equal those written out by hand."""
    config = CONFIG | changes
    drafter, weights = build(config)
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, V, (2, 8), generator=generator)
    features = torch.randn(2, 7, 3 * H, generator=generator)
    anchors = torch.tensor([[1, 5, 7], [6, 2, 6]])
    drafts = torch.randint(0, V, (2, 3, GAMMA), generator=generator)
    drafts[..., 0] = tokens.gather(1, anchors)
    block = drafter.encode(tokens, features).draft(anchors)
    steps = [block.step(k, drafts[..., k]) for k in range(GAMMA)]
    for s in range(2):
        for a in range(3):
            logits, confidences = literal_steps(weights, config, features[s], int(anchors[s, a]), drafts[s, a].tolist())
            for k, step in enumerate(steps):
                torch.testing.assert_close(step.logits[s, a], logits[k], atol=2e-5, rtol=1e-4)
                if step.confidence_logits is None:
                    assert not confidences
                    assert not drafter.has_confidence_head
                else:
                    torch.testing.assert_close(step.confidence_logits[s, a], confidences[k][0], atol=2e-5, rtol=1e-4)


def run_block(drafter: DSparkDrafter, tokens: Tensor, features: Tensor, anchors: Tensor) -> Tensor:
    """Greedy drafts' logits [γ, S, A, V]."""
    block = drafter.encode(tokens, features).draft(anchors)
    previous, out = tokens.gather(1, anchors), []
    for k in range(GAMMA):
        out.append(block.step(k, previous).logits.clone())
        previous = out[-1].argmax(dim=-1)
    return torch.stack(out)


def test_nothing_after_the_anchor_matters() -> None:
    """Other tokens and features at and past the anchor (the anchor token aside) change no logit."""
    drafter, _ = build(CONFIG)
    generator = torch.Generator().manual_seed(6)
    tokens, features = torch.randint(0, V, (1, 9), generator=generator), torch.randn(1, 8, 3 * H, generator=generator)
    anchors = torch.tensor([[4]])
    before = run_block(drafter, tokens, features, anchors)
    tokens[:, 5:], features[:, 4:] = 0, 9.0
    torch.testing.assert_close(run_block(drafter, tokens, features, anchors), before)


def test_blocks_do_not_see_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """All anchors at once, in parts of one anchor, or each by itself: the same logits."""
    drafter, _ = build(CONFIG | {"markov_head_type": "rnn"})
    generator = torch.Generator().manual_seed(7)
    tokens, features = torch.randint(0, V, (2, 9), generator=generator), torch.randn(2, 8, 3 * H, generator=generator)
    anchors = torch.tensor([[1, 3, 8], [2, 2, 7]])
    together = run_block(drafter, tokens, features, anchors)
    alone = torch.cat([run_block(drafter, tokens, features, anchors[:, [a]]) for a in range(3)], dim=2)
    torch.testing.assert_close(alone, together)
    monkeypatch.setattr(attention, "MAX_SCORES", 1)
    torch.testing.assert_close(run_block(drafter, tokens, features, anchors), together)


def test_appending_equals_reading_at_once() -> None:
    """A context grown token by token, or cut down to some sequences, drafts what a fresh one drafts."""
    drafter, _ = build(CONFIG)
    generator = torch.Generator().manual_seed(8)
    tokens, features = torch.randint(0, V, (3, 9), generator=generator), torch.randn(3, 8, 3 * H, generator=generator)
    grown = drafter.encode(tokens[:, :4], features[:, :3])
    grown.append(tokens[:, 4:5], features[:, 3:4])
    grown.append(tokens[:, 5:], features[:, 4:])
    rows = torch.tensor([2, 0])
    anchors = torch.tensor([[8, 3], [5, 1]])
    step = grown.take(rows).draft(anchors).step(0, tokens[rows].gather(1, anchors))
    whole = drafter.encode(tokens[rows], features[rows]).draft(anchors).step(0, tokens[rows].gather(1, anchors))
    torch.testing.assert_close(step.logits, whole.logits)


def test_embeddings_left_out_are_the_targets() -> None:
    """An export without embed_tokens and lm_head uses the target's."""
    weights = make_weights(CONFIG)
    embed, head = weights.pop("embed_tokens.weight"), weights.pop("lm_head.weight")
    target = TargetParts(
        name="t", hidden_size=H, vocab_size=V, num_layers=LAYERS, embed_tokens=embed, lm_head=head
    )  # fmt: skip
    bare = build_qwen3_dspark(checkpoint_of(CONFIG, weights), target)
    full, _ = build(CONFIG)
    tokens, features = torch.arange(6)[None], torch.ones(1, 5, 3 * H)
    anchors = torch.tensor([[2, 5]])
    torch.testing.assert_close(run_block(bare, tokens, features, anchors), run_block(full, tokens, features, anchors))


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"rope_theta": 50.0}, [50.0 ** (-2 * i / 6) for i in range(3)]),
        ({"rope_theta": 50.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
         [50.0 ** (-2 * i / 6) / 4 for i in range(3)]),
    ],
    ids=["older export", "older export, scaled"],
)  # fmt: skip
def test_rope_of_older_exports(scaling: dict[str, Any], expected: list[float]) -> None:
    """rope_theta and rope_scaling at the top of config.json are read as rope_parameters are."""
    config = {k: v for k, v in CONFIG.items() if k != "rope_parameters"} | scaling
    drafter, _ = build(config)
    torch.testing.assert_close(drafter.backbone.inverse_frequencies, torch.tensor(expected))  # type: ignore[attr-defined]


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "hidden size": ({"hidden_size": 32}, CheckpointError, r"hidden_size = 32: target has 16"),
    "vocabulary": ({"vocab_size": 25}, CheckpointError, r"vocab_size = 25: target has 24"),
    "target layers": ({"num_target_layers": 7}, CheckpointError, r"num_target_layers = 7"),
    "last layer": ({"target_layer_ids": [0, 5]}, CheckpointError, r"target_layer_ids holds 5"),
    "no layers": ({"target_layer_ids": []}, CheckpointError, r"target_layer_ids = \[\]"),
    "mask token": ({"mask_token_id": 24}, CheckpointError, r"mask_token_id = 24"),
    "head type": ({"markov_head_type": "lstm"}, UnsupportedModel, r"markov_head_type = 'lstm'"),
    "activation": ({"hidden_act": "gelu"}, UnsupportedModel, r"hidden_act = 'gelu'"),
    "rope": ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1.0}}, UnsupportedModel, r"rope_type"),
    "no rope": ({"rope_parameters": None}, CheckpointError, r"rope_parameters"),
    "layer types": ({"layer_types": ["sliding_attention"] * 2}, UnsupportedModel, r"layer_types"),
    "block size": ({"block_size": 0}, CheckpointError, r"block_size = 0"),
    "block size as text": ({"block_size": "7"}, CheckpointError, r"block_size = '7'"),
    "eps": ({"rms_norm_eps": None}, CheckpointError, r"rms_norm_eps"),
    "confidence without markov rank": ({"markov_rank": 0}, CheckpointError, r"confidence_head_with_markov"),
    "other rank": ({"markov_rank": 6}, CheckpointError, r"markov_w1.weight: shape \[24, 5\].*\[24, 6\]"),
    "more layers": ({"num_hidden_layers": 3}, CheckpointError, r"tensor layers.2.*missing"),
}


@pytest.mark.parametrize(("changes", "kind", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_misfits_are_refused(changes: dict[str, Any], kind: type[Exception], message: str) -> None:
    """A field that does not fit the target, the weights or this version is named."""
    with pytest.raises(kind, match=message):
        build_qwen3_dspark(checkpoint_of(CONFIG | changes, make_weights(CONFIG)), TARGET)


def test_weights_that_are_not_finite_are_refused() -> None:
    """NaN in one weight is found when it is read."""
    weights = make_weights(CONFIG)
    weights["norm.weight"][3] = float("nan")
    with pytest.raises(CheckpointError, match=r"tensor norm.weight: holds NaN"):
        build_qwen3_dspark(checkpoint_of(CONFIG, weights), TARGET)
