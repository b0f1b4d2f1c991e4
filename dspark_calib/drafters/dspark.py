"""DSpark and DFlash: a parallel backbone, a sequential head, a confidence head.

The backbone sees the context and γ slots (anchor token, then masks) once per block; the Markov head walks
the slots left to right. DFlash is the same class without the two heads (DSpark, §3.1; DeepSpec's
`Qwen3DSparkModel`, `Gemma4DSparkModel`).
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding

from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.drafter import DraftStep
from dspark_calib.drafters.heads import ConfidenceHead, MarkovHead, read_confidence_head, read_markov_head
from dspark_calib.drafters.qwen3_backbone import ContextCache
from dspark_calib.drafters.qwen3_weights import read_qwen3_backbone
from dspark_calib.drafters.target_parts import TargetParts, check_fits, check_layer_ids

MIN_PROJECTION_ROWS = 512
"""The vocabulary projection reads its whole matrix once a call, so few blocks take several slots at once."""


class Backbone(Protocol):
    """The parallel part of the drafter: context once per sequence, γ states per block."""

    def encode(self, features: Tensor, start: int) -> ContextCache:
        """Return keys and values of features [S, n, F] at positions start … start+n-1."""
        ...

    def block_states(self, cache: ContextCache, anchors: Tensor, anchor_tokens: Tensor) -> Tensor:
        """Return h_1 … h_γ [γ, S, A, H] of the blocks at anchors [S, A]."""
        ...

    def base_logits(self, states: Tensor) -> Tensor:
        """Return the base logits [..., V] of states [..., H], a fresh tensor."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DSparkDrafter:
    """A loaded DSpark (or, without heads, DFlash) drafter; see `Drafter` for the members.

    Attributes:
        gamma: γ.
        vocab_size: V.
        target_layer_ids: Target layers whose output is a feature.
        backbone: The parallel part.
        markov: The sequential head, None in DFlash.
        confidence: The confidence head, None in DFlash.
    """

    gamma: int
    vocab_size: int
    target_layer_ids: tuple[int, ...]
    backbone: Backbone
    markov: MarkovHead | None
    confidence: ConfidenceHead | None

    @property
    def has_confidence_head(self) -> bool:
        """Whether steps carry confidence logits."""
        return self.confidence is not None

    def encode(self, tokens: Tensor, features: Tensor) -> "DSparkContext":
        """Project the features of every position to context keys and values, once for all anchors."""
        return DSparkContext(self, tokens, self.backbone.encode(features, 0))


class DSparkContext:
    """Sequences read so far: tokens, and keys and values of every draft layer; see `DraftContext`."""

    def __init__(self, drafter: DSparkDrafter, tokens: Tensor, cache: ContextCache) -> None:
        self._drafter = drafter
        self._tokens = tokens
        self._cache = cache

    def draft(self, anchors: Tensor) -> "DSparkBlock":
        """Run the backbone over the blocks of these anchors [S, A]."""
        anchor_tokens = self._tokens.gather(1, anchors)
        states = self._drafter.backbone.block_states(self._cache, anchors, anchor_tokens)
        return DSparkBlock(self._drafter, states)

    def append(self, tokens: Tensor, features: Tensor) -> None:
        """Read more tokens [S, n] and the features [S, n, F] of the positions before them."""
        self._cache.extend(self._drafter.backbone.encode(features, self._cache.length))
        self._tokens = torch.cat((self._tokens, tokens), dim=1)

    def take(self, rows: Tensor) -> "DSparkContext":
        """Return the context of these sequences."""
        return DSparkContext(self._drafter, self._tokens[rows], self._cache.take(rows))


class DSparkBlock:
    """Blocks at the sequential head's work; see `DraftBlock`."""

    def __init__(self, drafter: DSparkDrafter, states: Tensor) -> None:
        """Take the states h_1 … h_γ [γ, S, A, H]."""
        self._drafter = drafter
        self._states = states
        blocks = states.shape[1] * states.shape[2]
        self._slots_at_once = min(drafter.gamma, -(-MIN_PROJECTION_ROWS // max(1, blocks)))
        self._base: Tensor | None = None
        rank = drafter.markov.rank if drafter.markov else 0
        self._memory = states.new_zeros((*states.shape[1:3], rank))

    def step(self, slot: int, previous_tokens: Tensor) -> DraftStep:
        """Return logits and confidence logits of one slot (see `DraftBlock.step`)."""
        hidden, logits = self._states[slot], self._base_logits(slot)
        markov, embedded = self._drafter.markov, None
        if markov is not None:
            embedded = embedding(previous_tokens, markov.embed)
            vector, self._memory = markov.mixer.mix(hidden, embedded, self._memory)
            logits = markov.add_bias(logits, vector)
        confidence = self._drafter.confidence
        return DraftStep(
            logits=logits, confidence_logits=None if confidence is None else confidence.logits(hidden, embedded)
        )

    def _base_logits(self, slot: int) -> Tensor:
        offset = slot % self._slots_at_once
        if offset == 0:
            self._base = None  # free the last slots' logits before the next are made
            self._base = self._drafter.backbone.base_logits(self._states[slot : slot + self._slots_at_once])
        assert self._base is not None  # noqa: S101 - slots come in order, 0 first
        return self._base[offset]


def build_qwen3_dspark(checkpoint: DrafterCheckpoint, target: TargetParts) -> DSparkDrafter:
    """Build DeepSpec's `Qwen3DSparkModel` (DSpark or DFlash) for its target.

    Raises:
        CheckpointError: If the checkpoint is damaged or belongs to another target.
        UnsupportedModel: If it holds a kind of head or option this version does not run.
    """
    layer_ids = checkpoint.layer_ids("target_layer_ids")
    check_is_drafter_of(checkpoint, target, layer_ids)
    backbone = read_qwen3_backbone(checkpoint, target, len(layer_ids))
    markov = read_markov_head(checkpoint, target.hidden_size, target.vocab_size)
    return DSparkDrafter(
        gamma=backbone.shape.gamma,
        vocab_size=target.vocab_size,
        target_layer_ids=layer_ids,
        backbone=backbone,
        markov=markov,
        confidence=read_confidence_head(checkpoint, target.hidden_size, markov),
    )


def check_is_drafter_of(checkpoint: DrafterCheckpoint, target: TargetParts, layer_ids: tuple[int, ...]) -> None:
    """Refuse a drafter whose sizes or feature layers are not the target's.

    Raises:
        CheckpointError: Naming the field that does not fit.
    """
    where = checkpoint.config_file
    check_fits("hidden_size", checkpoint.integer("hidden_size", 1), target.hidden_size, target, where)
    check_fits("vocab_size", checkpoint.integer("vocab_size", 1), target.vocab_size, target, where)
    if "num_target_layers" in checkpoint.config:
        layers = checkpoint.integer("num_target_layers", 1)
        check_fits("num_target_layers", layers, target.num_layers, target, where)
    check_layer_ids(layer_ids, target, f"{where}, target_layer_ids")
