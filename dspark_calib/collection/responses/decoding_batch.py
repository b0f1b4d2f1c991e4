"""Sequences that are being written together: prompts read, then one token a step for all of them.

Everything a step reads or writes lies on the device and keeps its place, so that on a GPU a step is captured
once as a CUDA graph and replayed without the processor (which otherwise is what a small model waits for).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.law import softmax
from dspark_calib.collection.responses.grouped_attention import takes_one_mask
from dspark_calib.collection.responses.key_value_cache import joined_cache, preallocated_cache
from dspark_calib.collection.target import cache_keyword
from dspark_calib.collection.vocabulary_rows import draw_tokens, top_two

_PREFILL_TOKENS = {"cpu": 4096, "cuda": 65536}
"""Prompt tokens of one prefill forward; prompts of like length go together and carry little padding."""
_GRAPH_STRIDE = 32
"""Steps between two looks at who has ended, each a wait for the GPU."""
_GRAPH_WIDTH = 128
"""A captured step sees a multiple of this many tokens; beyond it another is captured."""


class DecodingBatch:
    """Sequences that are being written; those that have ended leave from time to time.

    Args:
        model: The target.
        prompts: Shortest first.
        uniforms: In [0, 1), float32 [rows, max_new_tokens]; None for greedy.
        temperature: τ, where there are uniforms.
        max_new_tokens: Most tokens of a response.
        stop_token_ids: Tokens that end a response.

    Attributes:
        tokens: What was written, int64 [rows, max_new_tokens]; anything behind a stop token.
        written: Steps done.
    """

    def __init__(
        self,
        model: Any,
        prompts: list[Prompt],
        uniforms: np.ndarray[Any, np.dtype[np.float32]] | None,
        temperature: float,
        max_new_tokens: int,
        stop_token_ids: tuple[int, ...],
    ) -> None:
        self._model, self._temperature, self._keyword = model, temperature, cache_keyword(model)
        device = self._device = model.device
        self._one_mask = takes_one_mask(model)
        self._captures = self._one_mask and device.type == "cuda"
        self._graph: torch.cuda.CUDAGraph | None = None
        lengths = [len(prompt.token_ids) for prompt in prompts]
        self._filled = max(lengths)
        capacity = self._filled + max_new_tokens
        self._positions = torch.tensor(lengths, device=device)[:, None]
        self._slots = torch.arange(capacity, device=device)
        self._mask = self._slots >= self._filled - self._positions
        self._slot = torch.tensor([self._filled], device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self._stops = torch.tensor(stop_token_ids, dtype=torch.int64, device=device)
        self._uniforms = None if uniforms is None else torch.from_numpy(uniforms).to(device)
        self._rows = torch.arange(len(prompts), device=device)
        self._finished = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        self._tokens = torch.zeros((len(prompts), max_new_tokens), dtype=torch.int64, device=device)
        self.tokens = torch.zeros_like(self._tokens)
        self._next = torch.zeros(len(prompts), dtype=torch.int64, device=device)
        self.written = 0
        logits, self._cache = self._prefill(prompts, capacity)
        self._draw(logits)
        self.written = 1

    @property
    def stride(self) -> int:
        """Steps that are best done in one call of `advance`."""
        return _GRAPH_STRIDE if self._captures else 1

    def drop_finished(self) -> bool:
        """Take ended sequences out where that saves a quarter of the work; return whether all have ended."""
        finished = int(self._finished.sum())
        if finished == len(self._finished):
            return True
        if 4 * finished >= len(self._finished):
            self._keep((~self._finished).nonzero()[:, 0])
        return False

    def advance(self, steps: int) -> None:
        """Write this many tokens more."""
        for _ in range(steps):
            self._set_width()
            if self._graph is not None:
                self._graph.replay()
            else:
                self._run_step()
                if self._captures:
                    self._capture()
            self._filled += 1
            self.written += 1

    def finish(self) -> Tensor:
        """Return all that was written, int64 [rows, max_new_tokens]."""
        self.tokens[self._rows] = self._tokens
        return self.tokens

    def _keep(self, rows: Tensor) -> None:
        self.tokens[self._rows] = self._tokens
        for name in ("_rows", "_next", "_positions", "_mask", "_finished", "_tokens"):
            setattr(self, name, getattr(self, name)[rows])
        if self._uniforms is not None:
            self._uniforms = self._uniforms[rows]
        for layer in self._cache.layers:
            layer.keep_rows(rows)
        self._graph = None

    def _set_width(self) -> None:
        """Let the next forward see all tokens held and the one to come; captured steps see a round number."""
        width = self._filled + 1
        if self._captures:
            width = min(-(-width // _GRAPH_WIDTH) * _GRAPH_WIDTH, len(self._slots))
        for layer in self._cache.layers:
            layer.length, layer.slot = self._filled, self._slot
            if layer.width != width:
                layer.width, self._graph = width, None
        self._width = width

    def _run_step(self) -> None:
        """Run the target over the tokens drawn last and draw the next: nothing here waits for the device."""
        visible = self._mask[:, : self._width]
        if self._one_mask:
            visible = (visible & (self._slots[: self._width] <= self._slot))[:, None, None, :]
        logits = self._run(self._next[:, None], visible, self._positions, self._cache)
        self._slot += 1
        self._positions += 1
        self._draw(logits)

    def _capture(self) -> None:
        """Record the step as a CUDA graph; recording runs nothing."""
        self._graph = torch.cuda.CUDAGraph()
        # A stream of this device: torch keeps one for all captures of a process, on whichever device came first.
        stream: Any = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        with torch.cuda.graph(self._graph, stream=stream):
            self._run_step()

    def _draw(self, logits: Tensor) -> None:
        """Draw the next token of every row and note it."""
        if self._uniforms is None:
            token = top_two(logits.float())[1]
        else:
            uniforms = self._uniforms.index_select(1, self._step)[:, 0]
            token = draw_tokens(softmax(logits, self._temperature), uniforms)
        self._next.copy_(token)
        self._tokens.index_copy_(1, self._step, token[:, None])
        self._finished |= (token[:, None] == self._stops).any(dim=1)
        self._step += 1

    def _prefill(self, prompts: list[Prompt], capacity: int) -> tuple[Tensor, Any]:
        """Read the prompts, neighbours in length together, and join their caches."""
        parts, logits, start = [], [], 0
        budget = _PREFILL_TOKENS["cuda" if self._device.type == "cuda" else "cpu"]
        while start < len(prompts):
            end = start + 1
            while end < len(prompts) and (end + 1 - start) * len(prompts[end].token_ids) <= budget:
                end += 1
            part_logits, part = self._prefill_part(prompts[start:end])
            logits.append(part_logits)
            parts.append(part)
            start = end
        return torch.cat(logits), joined_cache(self._model, parts, self._filled, capacity)

    def _prefill_part(self, prompts: list[Prompt]) -> tuple[Tensor, Any]:
        width = len(prompts[-1].token_ids)
        ids = torch.tensor([(0,) * (width - len(p.token_ids)) + p.token_ids for p in prompts], device=self._device)
        lengths = torch.tensor([len(p.token_ids) for p in prompts], device=self._device)[:, None]
        mask = torch.arange(width, device=self._device) >= width - lengths
        cache = preallocated_cache(self._model, width)
        positions = (mask.cumsum(dim=1) - 1).clamp_(min=0)
        return self._run(ids, mask, positions, cache), cache

    def _run(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> Tensor:
        """Return the logits of the last token, [rows, V]."""
        arguments = {self._keyword: cache, "use_cache": True, "logits_to_keep": 1}
        output = self._model(input_ids=ids, attention_mask=mask, position_ids=positions, **arguments)
        logits: Tensor = output.logits[:, -1]
        return logits
