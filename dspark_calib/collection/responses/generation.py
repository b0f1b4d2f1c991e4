"""Responses written by the target itself: static batches, key-value cache, plain ancestral sampling.

Tokens come from softmax(logits/τ) alone. Whatever top-k, top-p or penalties a generation config carries is
not applied, because the verification law needs y drawn from exactly the p it judges with.

Every prompt has its own stream of uniforms, so its draws do not depend on what shares its batch. (Its logits
may, in the last bits: another batch shape sums in another order.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.job import Tick
from dspark_calib.collection.law import is_greedy, softmax
from dspark_calib.collection.responses.key_value_cache import check_cacheable, joined_cache, preallocated_cache
from dspark_calib.collection.responses.response import cut_at_stop
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target import cache_keyword
from dspark_calib.collection.uniforms import keyed_generator
from dspark_calib.collection.vocabulary_rows import draw_tokens, top_two

_PREFILL_TOKENS = 4096
"""Prompt tokens of one prefill forward on the CPU; short prompts then carry little padding."""


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
    with torch.inference_mode():
        written = _write(model, ordered, sampling, tick)
    responses: list[ResponseSequence | None] = [None] * len(prompts)
    for place, tokens in zip(shortest_first, written, strict=True):
        responses[place] = cut_at_stop(prompts[place], tokens, sampling.stop_token_ids)
    return [response for response in responses if response is not None]


def response_uniforms(prompt: Prompt, sampling: Sampling) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the uniforms in [0, 1) that this prompt's response is drawn by, float32 [max_new_tokens]."""
    generator = keyed_generator(sampling.seed, "response", prompt.dataset, prompt.prompt_id)
    return generator.random(sampling.max_new_tokens, dtype=np.float32)


def _write(model: Any, prompts: list[Prompt], sampling: Sampling, tick: Tick) -> list[list[int]]:
    """Return the tokens of each prompt, at least up to its first stop token."""
    batch = _DecodingBatch(model, prompts, sampling)
    for step in range(sampling.max_new_tokens):
        batch.draw(step)
        tick((step + 1) / sampling.max_new_tokens)
        if step + 1 == sampling.max_new_tokens or batch.drop_finished():
            break
        batch.forward()
    return batch.tokens.tolist()


class _DecodingBatch:
    """Sequences that are being written; those that have ended leave the forward pass from time to time.

    Args:
        model: The target.
        prompts: Shortest first.
        sampling: How to write.
    """

    def __init__(self, model: Any, prompts: list[Prompt], sampling: Sampling) -> None:
        self._model, self._sampling = model, sampling
        self._keyword = cache_keyword(model)
        device = model.device
        lengths = [len(prompt.token_ids) for prompt in prompts]
        self._longest = max(lengths)
        capacity = self._longest + sampling.max_new_tokens
        self._positions = torch.tensor(lengths, device=device)[:, None]
        self._mask = torch.arange(capacity, device=device) >= self._longest - self._positions
        self._mask = self._mask.long()
        self._rows = torch.arange(len(prompts), device=device)
        self._stops = torch.tensor(sampling.stop_token_ids, device=device, dtype=torch.int64)
        self._uniforms = None
        if not is_greedy(sampling.temperature):
            self._uniforms = torch.from_numpy(np.stack([response_uniforms(p, sampling) for p in prompts])).to(device)
        self._finished = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        self.tokens = torch.zeros((len(prompts), sampling.max_new_tokens), dtype=torch.int64, device=device)
        self._filled = self._longest
        self._logits, self._cache = self._prefill(prompts, capacity)

    def _prefill(self, prompts: list[Prompt], capacity: int) -> tuple[Tensor, Any]:
        """Read the prompts, neighbours in length together, and join their caches."""
        parts, logits, start = [], [], 0
        while start < len(prompts):
            end = start + 1
            while end < len(prompts) and (end + 1 - start) * len(prompts[end].token_ids) <= _PREFILL_TOKENS:
                end += 1
            part_logits, part = self._prefill_part(prompts[start:end])
            logits.append(part_logits)
            parts.append(part)
            start = end
        return torch.cat(logits), joined_cache(self._model, parts, self._longest, capacity)

    def _prefill_part(self, prompts: list[Prompt]) -> tuple[Tensor, Any]:
        width = len(prompts[-1].token_ids)
        device = self._model.device
        ids = torch.tensor([(0,) * (width - len(p.token_ids)) + p.token_ids for p in prompts], device=device)
        lengths = torch.tensor([len(p.token_ids) for p in prompts], device=device)[:, None]
        mask = (torch.arange(width, device=device) >= width - lengths).long()
        cache = preallocated_cache(self._model, width)
        positions = (mask.cumsum(dim=1) - 1).clamp_(min=0)
        return self._run(ids, mask, positions, cache), cache

    def _run(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
        """Return the logits of the last token, [rows, V]."""
        arguments = {self._keyword: cache, "use_cache": True, "logits_to_keep": 1}
        output = self._model(input_ids=ids, attention_mask=mask, position_ids=positions, **arguments)
        logits: Tensor = output.logits[:, -1]
        return logits

    def draw(self, step: int) -> None:
        """Draw the next token of every row."""
        if self._uniforms is None:
            self._next = top_two(self._logits.float())[1]
        else:
            p = softmax(self._logits, self._sampling.temperature)
            self._next = draw_tokens(p, self._uniforms[self._rows, step])
        self.tokens[self._rows, step] = self._next
        self._finished |= torch.isin(self._next, self._stops)

    def drop_finished(self) -> bool:
        """Take ended rows out where that saves a quarter of the work; return whether all have ended."""
        finished = int(self._finished.sum())
        if finished == len(self._finished):
            return True
        if 4 * finished >= len(self._finished):
            keep = (~self._finished).nonzero()[:, 0]
            self._rows, self._next, self._positions = self._rows[keep], self._next[keep], self._positions[keep]
            self._mask, self._finished = self._mask[keep], self._finished[keep]
            for layer in self._cache.layers:
                layer.keep_rows(keep)
        return False

    def forward(self) -> None:
        """Run the target over the tokens just drawn."""
        self._filled += 1
        self._logits = self._run(self._next[:, None], self._mask[:, : self._filled], self._positions, self._cache)
        self._positions = self._positions + 1
