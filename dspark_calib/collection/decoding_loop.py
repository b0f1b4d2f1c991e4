"""The plain decoding loop: draft one block, verify it in one target forward, as an engine does.

The reference that parallel collection is tested and timed against. Key-value caches for both models, one
target forward of 1 + γ tokens a round, drafts from q by inverse CDF, accept or resample from max(p-q, 0)
(Leviathan et al. 2023, Algorithm 1). One sequence at a time; nothing is shared with the parallel scoring but
the drafter, the target and the label rules.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dspark_calib.collection.labels import count_observed
from dspark_calib.collection.law import is_greedy, softmax
from dspark_calib.collection.target_states import TargetForward
from dspark_calib.collection.vocabulary_rows import draw_tokens
from dspark_calib.drafters.drafter import DraftContext, Drafter

_CLAMP = 1e-8
"""DeepSpec's evaluator takes at least this for q(x), and resamples from p where no more residual is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRound:
    """One round of the loop.

    Attributes:
        anchor: t, token index in prompt + response.
        draft_tokens: The drafts the block has (γ, or fewer where it ended early).
        confidence_logits: Raw, one a draft; empty without a head.
        accepted: Drafts accepted.
        observed: Positions with a known label.
    """

    anchor: int
    draft_tokens: tuple[int, ...]
    confidence_logits: tuple[float, ...]
    accepted: int
    observed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A decoded response.

    Attributes:
        token_ids: Prompt and response, the stop token included iff it was produced.
        prompt_length: P.
        ending: `eos` or `length`.
        rounds: In order.
    """

    token_ids: tuple[int, ...]
    prompt_length: int
    ending: str
    rounds: tuple[DecodedRound, ...]


@torch.inference_mode()
def decode(
    prompt: Sequence[int],
    target: TargetForward,
    drafter: Drafter,
    *,
    temperature: float,
    max_new_tokens: int,
    stop_tokens: Collection[int],
    rng: np.random.Generator,
) -> Decoded:
    """Decode one prompt speculatively.

    Args:
        prompt: Token ids, at least one.
        target: Verifies; records the drafter's feature layers.
        drafter: Proposes.
        temperature: τ; below 1e-5 greedy.
        max_new_tokens: Response tokens at most; drafts past the limit are verified but not kept.
        stop_tokens: Tokens that end the response.
        rng: Draws drafts, acceptances and resampled tokens.
    """
    loop = _Loop(prompt, target, drafter, temperature, rng)
    limit = len(prompt) + max_new_tokens
    rounds: list[tuple[int, _Draft, int]] = []
    while len(loop.tokens) < limit and loop.tokens[-1] not in stop_tokens:
        anchor = len(loop.tokens) - 1
        draft = loop.draft()
        accepted, new = loop.verify(draft)
        kept = _until_stop(new, stop_tokens)[: limit - len(loop.tokens)]
        rounds.append((anchor, draft, min(accepted, len(kept))))
        loop.commit(kept)
    ending = "eos" if loop.tokens[-1] in stop_tokens else "length"
    return Decoded(
        token_ids=tuple(loop.tokens),
        prompt_length=len(prompt),
        ending=ending,
        rounds=tuple(_labelled(anchor, draft, tau, len(loop.tokens), ending) for anchor, draft, tau in rounds),
    )


def _labelled(anchor: int, draft: "_Draft", accepted: int, length: int, ending: str) -> DecodedRound:
    verified = len(draft.tokens)
    left = length - 1 - anchor
    return DecodedRound(
        anchor=anchor,
        draft_tokens=tuple(draft.tokens),
        confidence_logits=tuple(draft.confidence_logits),
        accepted=accepted,
        observed=int(count_observed(accepted, left, verified, ending == "eos")),
    )


def _until_stop(tokens: list[int], stop_tokens: Collection[int]) -> list[int]:
    for i, token in enumerate(tokens):
        if token in stop_tokens:
            return tokens[: i + 1]
    return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A drafted block: tokens, confidence logits, and q [V] of each (empty when greedy)."""

    tokens: list[int]
    confidence_logits: list[float]
    probabilities: list[Tensor]


class _Loop:
    """Tokens so far, and the caches of both models: the target's holds every token but the last."""

    def __init__(
        self,
        prompt: Sequence[int],
        target: TargetForward,
        drafter: Drafter,
        temperature: float,
        rng: np.random.Generator,
    ) -> None:
        from transformers import DynamicCache

        self.tokens = list(prompt)
        self._target, self._drafter, self._rng = target, drafter, rng
        self._temperature, self._greedy = temperature, is_greedy(temperature)
        self._cache = DynamicCache()
        states = target.run(self._row(self.tokens), self._cache)
        self._features = states.features  # of all tokens up to the anchor, which the next round knows
        self._context: DraftContext | None = None
        first = target.logits(states.final[:, -1])
        self.tokens.append(self._sample(first))

    def draft(self) -> _Draft:
        """Draft a block at the last token."""
        self._read()
        assert self._context is not None  # noqa: S101 - _read made it
        block = self._context.draft(self._row([len(self.tokens) - 1]))
        previous = self._row(self.tokens[-1:])
        out = _Draft(tokens=[], confidence_logits=[], probabilities=[])
        for k in range(self._drafter.gamma):
            step = block.step(k, previous)
            if step.drafted is not None and not bool(step.drafted):
                break
            logits = step.logits[:, 0]
            if not self._greedy:
                out.probabilities.append(softmax(logits, self._temperature)[0])
            out.tokens.append(self._sample(logits))
            if step.confidence_logits is not None:
                out.confidence_logits.append(float(step.confidence_logits))
            previous = self._row(out.tokens[-1:])
        return out

    def verify(self, draft: _Draft) -> tuple[int, list[int]]:
        """Run the target over anchor and drafts; return drafts accepted, and these with the token after them."""
        states = self._target.run(self._row([self.tokens[-1], *draft.tokens]), self._cache)
        self._features = states.features
        logits = self._target.logits(states.final[0])
        accepted, last = self._accept_greedy(draft, logits) if self._greedy else self._accept_sampled(draft, logits)
        return accepted, [*draft.tokens[:accepted], last]

    def commit(self, tokens: list[int]) -> None:
        """Keep these tokens; roll the target's cache back to all of them but the last."""
        self.tokens.extend(tokens)
        excess = self._cache.get_seq_length() - (len(self.tokens) - 1)
        if excess:
            self._cache.crop(-excess)
        self._features = self._features[:, : len(tokens)]

    def _read(self) -> None:
        """Let the drafter read what was committed: its context holds the features of all tokens but the last."""
        if self._context is None:
            self._context = self._drafter.encode(self._row(self.tokens), self._features)
        else:
            count = self._features.shape[1]
            self._context.append(self._row(self.tokens[-count:]), self._features)

    def _accept_greedy(self, draft: _Draft, logits: Tensor) -> tuple[int, int]:
        best: list[int] = logits.argmax(dim=-1).tolist()
        accepted = 0
        while accepted < len(draft.tokens) and draft.tokens[accepted] == best[accepted]:
            accepted += 1
        return accepted, best[accepted]

    def _accept_sampled(self, draft: _Draft, logits: Tensor) -> tuple[int, int]:
        for k, (token, q) in enumerate(zip(draft.tokens, draft.probabilities, strict=True)):
            p = softmax(logits[k], self._temperature)
            if self._rng.random() * max(float(q[token]), _CLAMP) < float(p[token]):
                continue
            residual = (p - q).clamp_(min=0.0)
            return k, self._draw(residual if float(residual.sum()) > _CLAMP else p)
        return len(draft.tokens), self._draw(softmax(logits[len(draft.tokens)], self._temperature))

    def _sample(self, logits: Tensor) -> int:
        """Return the argmax of logits [1, V], or a token drawn at the temperature."""
        return int(logits.argmax()) if self._greedy else self._draw(softmax(logits[0], self._temperature))

    def _draw(self, weights: Tensor) -> int:
        uniform = torch.tensor([self._rng.random()], device=weights.device)
        return int(draw_tokens(weights[None], uniform))

    def _row(self, tokens: list[int]) -> Tensor:
        return torch.tensor([tokens], device=self._target.device)
