"""Prompt lookup: draft what followed the last tokens where they stood before; no model.

The rule is that of transformers' prompt lookup decoding and vLLM's n-gram proposer: take the longest
n-gram, n = max … min, that ends at the anchor and stands earlier in the text; of its occurrences take
the *earliest*; the draft is what follows it, up to γ tokens, cut where the known text ends. Neither
stop tokens nor sampling rules shorten it here.

What a miss means: without a match the block has no drafts (`drafted` is False from slot 0 on), so the
round verifies nothing, observes nothing and yields the one token the target writes anyway. A draft is
certain of itself (q is one-hot), so the usual proxies say 1 whatever happens; the trace shows it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_calib.drafters.drafter import IMPOSSIBLE_LOGIT, DraftStep

DEFAULT_GAMMA = 10
DEFAULT_MAX_NGRAM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramDrafter:
    """Prompt lookup behind the drafter interface.

    Attributes:
        vocab_size: V of the target.
        gamma: Longest draft, γ (transformers' default: 10).
        max_ngram: Longest n-gram looked up (transformers' default: 2).
        min_ngram: Shortest n-gram looked up.
    """

    vocab_size: int
    gamma: int = DEFAULT_GAMMA
    max_ngram: int = DEFAULT_MAX_NGRAM
    min_ngram: int = 1

    def __post_init__(self) -> None:
        if self.gamma < 1 or not 1 <= self.min_ngram <= self.max_ngram:
            raise ValueError(
                f"prompt lookup needs gamma ≥ 1 and 1 ≤ min_ngram ≤ max_ngram, got gamma={self.gamma}, "
                f"min_ngram={self.min_ngram}, max_ngram={self.max_ngram}"
            )

    @property
    def target_layer_ids(self) -> tuple[int, ...]:
        """No target features are read."""
        return ()

    @property
    def has_confidence_head(self) -> bool:
        """There is no head; confidence comes from a proxy."""
        return False

    def encode(self, tokens: Tensor, features: Tensor) -> "NgramContext":  # noqa: ARG002 - the interface
        """Look up every position of these sequences (tokens: int64 [S, T])."""
        return NgramContext(self, tokens)


class NgramContext:
    """Sequences with, for every position, where its last n-gram stood first."""

    def __init__(self, drafter: NgramDrafter, tokens: Tensor) -> None:
        self._drafter = drafter
        self._tokens = tokens
        self._sources = find_sources(tokens, drafter.min_ngram, drafter.max_ngram)

    def draft(self, anchors: Tensor) -> "NgramBlock":
        """Open the blocks of these anchors (int64 [S, A])."""
        return NgramBlock(self._drafter.vocab_size, self._tokens, anchors, self._sources.gather(1, anchors))

    def append(self, tokens: Tensor, features: Tensor) -> None:  # noqa: ARG002 - the interface
        """Read more tokens (int64 [S, n]); later ones never change an earlier position's source."""
        self._tokens = torch.cat([self._tokens, tokens], dim=1)
        self._sources = find_sources(self._tokens, self._drafter.min_ngram, self._drafter.max_ngram)

    def take(self, rows: Tensor) -> "NgramContext":
        """Return the context of these sequences (int64 [S'])."""
        chosen = object.__new__(NgramContext)
        chosen._drafter = self._drafter
        chosen._tokens, chosen._sources = self._tokens[rows], self._sources[rows]
        return chosen


class NgramBlock:
    """The copied continuation of every anchor."""

    def __init__(self, vocab_size: int, tokens: Tensor, anchors: Tensor, sources: Tensor) -> None:
        self._vocab_size = vocab_size
        self._tokens = tokens
        self._anchors = anchors
        self._sources = sources

    def step(self, slot: int, previous_tokens: Tensor) -> DraftStep:  # noqa: ARG002 - copied, not computed
        """Return one-hot logits of the copied token, and whether there is one."""
        position = self._sources + 1 + slot
        drafted = (self._sources >= 0) & (position <= self._anchors)
        copied = self._tokens.gather(1, torch.minimum(position, self._anchors))
        logits = torch.full((*copied.shape, self._vocab_size), IMPOSSIBLE_LOGIT, device=copied.device)
        logits.scatter_(2, copied.unsqueeze(2), 0.0)
        return DraftStep(logits=logits, confidence_logits=None, drafted=drafted)


def find_sources(tokens: Tensor, min_ngram: int, max_ngram: int) -> Tensor:
    """Return where the longest n-gram that ends at each position stood first.

    The earliest occurrence in the whole sequence is the earliest one before any position that repeats
    it, so one pass serves every anchor, and padding on the right changes nothing.

    Args:
        tokens: int64 [S, T].
        min_ngram: Shortest n-gram that counts.
        max_ngram: Longest n-gram looked up.

    Returns:
        int64 [S, T]: index of the *last* token of the earliest occurrence; -1 without a match.
    """
    rows, length = tokens.shape
    row = torch.arange(rows, device=tokens.device).unsqueeze(1)
    here = torch.arange(length, device=tokens.device).expand(rows, length)
    sources = torch.full_like(tokens, -1)
    names = torch.zeros_like(tokens)
    tokens_bound = tokens.max() + 1
    for n in range(1, min(max_ngram, length) + 1):
        # The n-gram that ends at i is the (n-1)-gram that ends at i-1 and the token at i; equal ones share a number.
        shorter = torch.cat([tokens.new_zeros(rows, 1), names[:, :-1]], dim=1) if n > 1 else row.expand(rows, length)
        _, names = torch.unique(shorter * tokens_bound + tokens, return_inverse=True)
        if n < min_ngram:
            continue
        complete = here >= n - 1
        first = torch.full((int(names.max()) + 1,), length, device=tokens.device)
        first = first.scatter_reduce(0, names[complete], here[complete], "amin")[names]
        sources = torch.where(complete & (first < here), first, sources)
    return sources
