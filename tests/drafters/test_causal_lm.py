"""An independent causal LM as drafter: many blocks at once give what plain decoding gives."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from dspark_calib.drafters.causal_lm import CausalLMDrafter, check_tree_steps
from dspark_calib.errors import CollectionError, UnsupportedModel

SIZES = {
    "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
}  # fmt: skip


def gpt2() -> Any:
    """Learned positions."""
    return GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=128))


def gemma3() -> Any:
    """Sliding and full layers in turn, a window shorter than the text."""
    kinds = ["sliding_attention", "full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, head_dim=8, sliding_window=5, layer_types=kinds))


MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=8)),
    "mistral with a window": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=5)),
    "gemma3": gemma3,
    "gpt2": gpt2,
}


def make_drafter(name: str, gamma: int = 4, vocab_size: int = 40) -> tuple[CausalLMDrafter, Any]:
    """A random model, spread out so that greedy choices are clear."""
    torch.manual_seed(3)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return CausalLMDrafter(model, gamma=gamma, vocab_size=vocab_size), model


def logits_by_decoding(model: Any, text: Tensor, drafts: list[int]) -> Tensor:
    """Logits after each token of `drafts` appended to the text, one full forward each."""
    rows = []
    for k in range(len(drafts)):
        ids = torch.cat((text, torch.tensor(drafts[: k + 1], dtype=torch.long)))[None]
        with torch.no_grad():
            rows.append(model(ids).logits[0, -1])
    return torch.stack(rows)


@pytest.mark.parametrize("name", list(MODELS))
def test_blocks_at_once_give_the_logits_of_plain_decoding(name: str) -> None:
    """Every anchor's chain has the logits of full forwards over its own text, whatever stands beside or after it."""
    drafter, model = make_drafter(name)
    tokens = torch.randint(0, 40, (2, 40), generator=torch.Generator().manual_seed(1))
    anchors = torch.stack([torch.arange(1, 39), torch.arange(38, 0, -1)])  # 38 anchors: three parts
    chains = torch.randint(0, 40, (2, 38, 4), generator=torch.Generator().manual_seed(2))
    chains[:, :, 0] = tokens.gather(1, anchors)
    block = drafter.encode(tokens, tokens.new_zeros(0)).draft(anchors)
    found = torch.stack([block.step(k, chains[:, :, k]).logits for k in range(4)], dim=2)
    for s, a in [(0, 0), (0, 20), (0, 37), (1, 3), (1, 37)]:
        expected = logits_by_decoding(model, tokens[s, : anchors[s, a]], chains[s, a].tolist())
        torch.testing.assert_close(found[s, a], expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_append_and_take_continue_the_cache(name: str) -> None:
    """Reading in pieces and keeping some sequences gives the logits of reading those sequences at once."""
    drafter, _ = make_drafter(name)
    tokens, nothing = torch.randint(0, 40, (3, 21), generator=torch.Generator().manual_seed(4)), torch.zeros(0)
    context = drafter.encode(tokens[:, :9], nothing)
    context.draft(torch.full((3, 1), 8)).step(0, tokens[:, 8:9])  # an open block leaves the context alone
    context.append(tokens[:, 9:10], nothing)
    rows = torch.tensor([2, 0])
    context = context.take(rows)
    context.append(tokens[rows, 10:], nothing)
    anchors = torch.tensor([[20], [20]])
    found = context.draft(anchors).step(0, tokens[rows, 20:]).logits
    expected = drafter.encode(tokens[rows], nothing).draft(anchors).step(0, tokens[rows, 20:]).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("vocab_size", [36, 48])
def test_vocabularies_padded_to_other_sizes_are_fitted(vocab_size: int) -> None:
    """Logits have the target's V entries; ids the draft model lacks get probability 0."""
    drafter, _ = make_drafter("llama", vocab_size=vocab_size)
    tokens = torch.arange(6)[None]
    q = (
        drafter.encode(tokens, torch.zeros(0))
        .draft(torch.tensor([[4]]))
        .step(0, torch.tensor([[4]]))
        .logits.softmax(-1)
    )
    assert q.shape == (1, 1, vocab_size)
    assert q[..., 40:].sum() == 0


@pytest.mark.parametrize("name", list(MODELS))
def test_known_architectures_pass_the_check(name: str) -> None:
    """The check at loading accepts models that draft many blocks at once correctly."""
    check_tree_steps(make_drafter(name)[0], name)


def test_a_model_that_ignores_the_mask_is_refused() -> None:
    """A model whose blocks see each other is named and refused, not used."""
    drafter, model = make_drafter("llama")
    real = model.forward

    def careless(attention_mask: Any = None, **arguments: Any) -> SimpleNamespace:
        return real(attention_mask=None if attention_mask is None else torch.ones_like(attention_mask), **arguments)

    class Careless:
        config, device, forward = model.config, model.device, staticmethod(real)
        __call__ = staticmethod(careless)

    with pytest.raises(UnsupportedModel, match="tiny-model"):
        check_tree_steps(CausalLMDrafter(Careless(), gamma=4, vocab_size=40), "tiny-model")
    check_tree_steps(drafter, "tiny-model")


def test_a_text_longer_than_the_models_positions_is_refused() -> None:
    """The text must fit the positions the draft model has; the message says what to lower."""
    drafter, _ = make_drafter("gpt2")
    with pytest.raises(CollectionError, match=r"129 tokens .* 128 positions .* --max-new-tokens"):
        drafter.encode(torch.zeros(1, 129, dtype=torch.long), torch.zeros(0))


def test_drafts_past_the_last_position_do_not_fail() -> None:
    """A text that fills the positions still gets a block; its drafts lie past any response and are not judged."""
    drafter, _ = make_drafter("gpt2")
    text = torch.arange(128)[None] % 40
    block = drafter.encode(text, torch.zeros(0)).draft(torch.tensor([[127]]))
    assert all(torch.isfinite(block.step(k, torch.tensor([[k]])).logits).all() for k in range(4))
