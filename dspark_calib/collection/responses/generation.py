"""Responses written by the target itself: static batches, key-value cache, plain ancestral sampling.

Tokens come from softmax(logits/τ) alone. Whatever top-k, top-p or penalties a generation config carries is
not applied, because the verification law needs y drawn from exactly the p it judges with.

Every prompt has its own stream of uniforms, so its draws do not depend on what shares its batch. (Its logits
may, in the last bits: another batch shape sums in another order.)
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.job import Tick
from dspark_calib.collection.law import is_greedy
from dspark_calib.collection.responses.decoding_batch import DecodingBatch
from dspark_calib.collection.responses.grouped_attention import grouped_attention
from dspark_calib.collection.responses.key_value_cache import check_cacheable
from dspark_calib.collection.responses.response import cut_at_stop
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.uniforms import keyed_generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the target writes.

    Attributes:
        temperature: τ; below 1e-5 greedy.
        max_new_tokens: Tokens after which a response is cut.
        stop_token_ids: Tokens that end a response.
        seed: Of the collection.
    """

    temperature: float
    max_new_tokens: int
    stop_token_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedResponses:
    """The target on the worker's own device writes the responses.

    Attributes:
        sampling: How to write.
    """

    sampling: Sampling

    @property
    def is_the_target(self) -> bool:
        """The loaded target writes."""
        return True

    def respond(self, model: Any, prompts: Sequence[Prompt], tick: Tick) -> list[ResponseSequence]:
        """Return one response a prompt, in order."""
        return generate_responses(model, prompts, self.sampling, tick)


def generate_responses(
    model: Any, prompts: Sequence[Prompt], sampling: Sampling, tick: Tick = lambda _share: None
) -> list[ResponseSequence]:
    """Let the target answer all prompts in one batch.

    Args:
        model: A transformers causal LM with a key-value cache.
        prompts: At least one.
        sampling: How to write.
        tick: Told after each step the share of `max_new_tokens` that is done.

    Returns:
        One response a prompt, in the order of the prompts.

    Raises:
        UnsupportedModel: If the model keeps no key-value cache.
    """
    check_cacheable(model)
    shortest_first = sorted(range(len(prompts)), key=lambda i: len(prompts[i].token_ids))
    ordered = [prompts[i] for i in shortest_first]
    with _current_device(model), torch.inference_mode():
        written = _write(model, ordered, sampling, tick)
    responses: list[ResponseSequence | None] = [None] * len(prompts)
    for place, tokens in zip(shortest_first, written, strict=True):
        responses[place] = cut_at_stop(prompts[place], tokens, sampling.stop_token_ids)
    return [response for response in responses if response is not None]


def response_uniforms(prompt: Prompt, sampling: Sampling) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the uniforms in [0, 1) that this prompt's response is drawn by, float32 [max_new_tokens]."""
    generator = keyed_generator(sampling.seed, "response", prompt.dataset, prompt.prompt_id)
    return generator.random(sampling.max_new_tokens, dtype=np.float32)


def _current_device(model: Any) -> AbstractContextManager[object]:
    """Make the model's GPU the current one: graphs are captured and replayed on the current device's stream."""
    return torch.cuda.device(model.device) if model.device.type == "cuda" else nullcontext()


def _write(model: Any, prompts: list[Prompt], sampling: Sampling, tick: Tick) -> list[list[int]]:
    """Return the tokens of each prompt, at least up to its first stop token."""
    uniforms = None
    if not is_greedy(sampling.temperature):
        uniforms = np.stack([response_uniforms(prompt, sampling) for prompt in prompts])
    batch = DecodingBatch(
        model, prompts, uniforms, sampling.temperature, sampling.max_new_tokens, sampling.stop_token_ids
    )
    with grouped_attention(model):
        while batch.written < sampling.max_new_tokens and not batch.drop_finished():
            batch.advance(min(batch.stride, sampling.max_new_tokens - batch.written))
            tick(batch.written / sampling.max_new_tokens)
    tokens: list[list[int]] = batch.finish().tolist()
    return tokens
