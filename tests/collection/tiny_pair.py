"""A random target and a random DSpark drafter small enough to enumerate."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from dspark_calib.collection.target_states import TargetForward
from dspark_calib.drafters.dspark import DSparkDrafter
from dspark_calib.drafters.heads import ConfidenceHead, MarkovHead, VanillaMixer
from dspark_calib.drafters.qwen3_backbone import Layer, Qwen3Backbone, Shape

H, D, RANK = 16, 8, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyPair:
    """Target, drafter, and the target as transformers knows it."""

    model: Any
    target: TargetForward
    drafter: DSparkDrafter


def make_pair(vocab: int, gamma: int, seed: int = 0) -> TinyPair:
    """A two-head, two-layer pair whose distributions are neither flat nor peaked, and overlap."""
    generator = torch.Generator().manual_seed(seed)

    def make(*shape: int, spread: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=generator) * spread / shape[-1] ** 0.5

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab, hidden_size=H, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, head_dim=D, max_position_embeddings=128, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for weight in model.parameters():
        if weight.dim() == 2:
            weight.data = make(*weight.shape)
    model.model.embed_tokens.weight.data = make(vocab, H, spread=4.0)
    model.lm_head.weight.data = make(vocab, H, spread=1.2)
    layer = Layer(
        qkv=make(4 * D, H), qkv_bias=None, q_norm=torch.ones(D), k_norm=torch.ones(D), output=make(H, 2 * D),
        output_bias=None, input_norm=torch.ones(H), post_norm=torch.ones(H), gate_up=make(48, H), down=make(H, 24),
    )  # fmt: skip
    backbone = Qwen3Backbone(
        shape=Shape(hidden=H, heads=2, kv_heads=1, head_dim=D, eps=1e-6, gamma=gamma, mask_token=vocab - 1),
        layers=(layer,), fuse=make(H, 2 * H), hidden_norm=torch.ones(H), norm=torch.ones(H),
        embed_tokens=model.model.embed_tokens.weight.data, lm_head=model.lm_head.weight.data,
        inverse_frequencies=100.0 ** (-torch.arange(D // 2) / (D // 2)), rope_scale=1.0,
    )  # fmt: skip
    markov = MarkovHead(embed=make(vocab, RANK, spread=2.0), project=make(vocab, RANK), mixer=VanillaMixer())
    confidence = ConfidenceHead(on_hidden=make(H, spread=2.0), on_markov=make(RANK), bias=torch.zeros(1))
    drafter = DSparkDrafter(
        gamma=gamma, vocab_size=vocab, target_layer_ids=(-1, 1), backbone=backbone, markov=markov,
        confidence=confidence,
    )  # fmt: skip
    return TinyPair(model=model, target=TargetForward(model, (-1, 1)), drafter=drafter)


@torch.inference_mode()
def sample_responses(
    pair: TinyPair, prompt: list[int], count: int, length: int, seed: int, stop: int | None = None
) -> list[list[int]]:
    """Responses drawn from the target at temperature 1 by transformers alone, cut at the stop token."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.tensor([prompt]).repeat(count, 1)
    for _ in range(length):
        probabilities = pair.model(rows).logits[:, -1].softmax(-1)
        rows = torch.cat((rows, torch.multinomial(probabilities, 1, generator=generator)), dim=1)
    responses = rows[:, len(prompt) :].tolist()
    return [r[: r.index(stop) + 1] if stop in r else r for r in responses]
