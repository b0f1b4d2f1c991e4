"""Responses the target writes: against transformers' own greedy search and a loop without a cache."""

from pathlib import Path
from typing import Any

import pytest
import torch
from disk_pair import STOP, VOCAB, save_target
from transformers import LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.responses import decoding_batch
from dspark_calib.collection.responses.generation import Sampling, generate_responses, response_uniforms
from dspark_calib.collection.target import find_target, load_target
from dspark_calib.errors import UnsupportedModel


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tiny target."""
    return load_target(find_target(str(save_target(tmp_path_factory.mktemp("pair") / "target"))), "cpu")


def prompts(count: int) -> list[Prompt]:
    """Prompts of different lengths."""
    generator = torch.Generator().manual_seed(3)
    lengths = [(7 * i) % 11 + 1 for i in range(count)]
    rows = [torch.randint(0, VOCAB - 4, (n,), generator=generator).tolist() for n in lengths]
    return [Prompt(dataset="d", prompt_id=str(i), domain=None, token_ids=tuple(r)) for i, r in enumerate(rows)]


def sampling(temperature: float, length: int = 24) -> Sampling:
    """How to write."""
    return Sampling(temperature=temperature, max_new_tokens=length, stop_token_ids=(STOP, 5), seed=9)


def test_greedy_responses_are_those_of_transformers(model: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left padding, prefill in pieces and leaving rows change no token of the greedy search."""
    monkeypatch.setitem(decoding_batch._PREFILL_TOKENS, "cpu", 16)
    for prompt, response in zip(prompts(9), generate_responses(model, prompts(9), sampling(0.0)), strict=True):
        assert response.token_ids == greedy_by_transformers(model, prompt)
        assert response.prompt_length == len(prompt.token_ids)


@torch.inference_mode()
def plain_sample(model: LlamaForCausalLM, prompt: Prompt, how: Sampling) -> list[int]:
    """Inverse-CDF sampling in float64, no cache, no batch."""
    tokens = list(prompt.token_ids)
    for u in response_uniforms(prompt, how):
        p = torch.softmax(model(torch.tensor([tokens])).logits[0, -1].double() / how.temperature, dim=-1)
        tokens.append(int((p.cumsum(0) <= float(u)).sum()))
        if tokens[-1] in how.stop_token_ids:
            break
    return tokens


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampled_responses_follow_softmax_alone(model: LlamaForCausalLM, temperature: float) -> None:
    """Every token is the one that softmax(logits/τ) and the prompt's own uniforms give, whatever its batch."""
    how = sampling(temperature)
    model.generation_config.top_k, model.generation_config.repetition_penalty = 2, 1.5  # must not matter
    together = generate_responses(model, prompts(8), how)
    assert [list(r.token_ids) for r in together] == [plain_sample(model, p, how) for p in prompts(8)]
    (alone,) = generate_responses(model, prompts(8)[5:6], how)
    assert alone == together[5]


def test_a_response_ends_with_its_first_stop_token(model: LlamaForCausalLM) -> None:
    """`eos` iff a stop token was produced, and then it is the last token and the only one."""
    responses = generate_responses(model, prompts(40), sampling(1.0, length=60))
    assert {r.ending for r in responses} == {"eos", "length"}
    for response in responses:
        written = response.token_ids[response.prompt_length :]
        assert sum(token in (STOP, 5) for token in written) == (response.ending == "eos")
        assert (written[-1] in (STOP, 5)) == (response.ending == "eos")
        assert response.ending == "eos" or len(written) == 60


def test_recurrent_targets_are_told_the_other_ways() -> None:
    """A model without a key-value cache cannot write here; the message names the two other sources."""
    from transformers import LlamaConfig

    class Recurrent:
        config = LlamaConfig(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"])

    with pytest.raises(UnsupportedModel, match="--responses or --responses-from"):
        generate_responses(Recurrent(), prompts(1), sampling(0.0))


WINDOWS = {"use_sliding_window": True, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}


@pytest.mark.parametrize("changes", [{}, WINDOWS, {"attn_implementation": "eager"}])
def test_other_ways_to_attend_write_as_transformers_does(changes: dict[str, Any]) -> None:
    """Grouped query heads, windows whose past stays in the cache, and attention that wants masks of its own."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=128, initializer_range=0.4, eos_token_id=STOP,
        **changes,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).eval()
    for prompt, response in zip(prompts(5), generate_responses(model, prompts(5), sampling(0.0)), strict=True):
        assert response.token_ids == greedy_by_transformers(model, prompt)


def greedy_by_transformers(model: Any, prompt: Prompt) -> tuple[int, ...]:
    """Prompt and greedy response, by transformers' own search."""
    ids = torch.tensor([prompt.token_ids])
    tokens = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24, eos_token_id=[STOP, 5],
        pad_token_id=0,
    )  # fmt: skip
    return tuple(tokens[0].tolist())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_captured_steps_write_what_plain_steps_write(tmp_path: Path, temperature: float) -> None:
    """CUDA graphs change no token, on the first device and on the last, after captures on another."""
    how = sampling(temperature, length=100)
    files = find_target(str(save_target(tmp_path / "target")))
    first, last, plain = (
        generate_responses(load_target(files, device, "float32"), prompts(12), how)
        for device in ("cuda:0", f"cuda:{torch.cuda.device_count() - 1}", "cpu")
    )
    assert first == last == plain
