"""Scoring responses: one target forward over whole sequences, every block judged by the reverse coupling.

`loop` walks all sequences of a batch in lockstep waves, one block a trajectory and wave, each then jumping
to t + accepted + 1: only blocks a decoding loop would visit are drafted, and the vocabulary projection runs
once per visited slot. `all` takes every anchor, a chunk of anchors at a time. Nothing is ever decoded.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dspark_calib.collection.blocks import Following, judge_blocks
from dspark_calib.collection.confidence_source import SOURCES
from dspark_calib.collection.law import is_greedy
from dspark_calib.collection.round_columns import JudgedAnchors, assemble_rounds, empty_rounds
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target_states import TargetForward
from dspark_calib.collection.target_window import TargetWindow
from dspark_calib.collection.uniforms import coupling_uniforms
from dspark_calib.drafters.drafter import DraftContext, Drafter
from dspark_calib.errors import UnsupportedModel
from dspark_calib.trace.rounds import Rounds

MAX_LOGITS = 1 << 26
"""Draft logits (blocks × vocabulary) of one slot held at once, whatever `batch_tokens` allows."""
_KEEP_ABOVE = 0.75
"""Finished sequences are dropped from a batch once less than this share of it is left."""


@torch.inference_mode()
def score_responses(
    sequences: Sequence[ResponseSequence],
    target: TargetForward,
    drafter: Drafter,
    *,
    temperature: float,
    seed: int,
    anchors: str = "loop",
    replicates: int = 1,
    confidence: str = "head",
    batch_tokens: int = 16384,
) -> Rounds:
    """Judge draft blocks on responses the target wrote, without decoding.

    Args:
        sequences: A batch in trace order; sequences without an anchor (fewer than 2 response tokens) give no rows.
        target: The model that wrote them, recording the drafter's feature layers.
        drafter: On the same device.
        temperature: τ the responses were sampled at; below 1e-5 greedy.
        seed: Of the coupling's uniforms.
        anchors: `loop` (what an engine visits) or `all`.
        replicates: Trajectories a response; each has its own uniforms.
        confidence: `head`, `draft-prob`, `margin` or `entropy`.
        batch_tokens: Most tokens of one target forward and most draft slots (blocks × γ) of one drafter pass;
            one sequence, or one block a sequence, goes through even where that is more.

    Returns:
        Rounds in trace order: sequence, replicate, anchor.

    Raises:
        UnsupportedModel: If the drafter has no confidence head and no proxy was named.
        CheckpointError: If a confidence logit is not finite.
        torch.OutOfMemoryError: If the device's memory does not suffice; a smaller batch may.
    """
    check_confidence_source(drafter, confidence)
    if anchors not in ("loop", "all"):
        raise ValueError(f"anchors must be 'loop' or 'all', got {anchors!r}")
    scored = [s for s in sequences if s.response_length >= 2]
    if not scored:
        return empty_rounds(drafter.gamma)
    batch = _open_batch(scored, target, drafter, temperature, seed, replicates, batch_tokens)
    visits = _visit_loop(batch) if anchors == "loop" else _visit_all(batch, batch_tokens)
    return assemble_rounds(scored, list(visits), confidence)


def check_confidence_source(drafter: Drafter, confidence: str) -> None:
    """Refuse a confidence source the drafter does not have.

    Raises:
        UnsupportedModel: If it is `head` and there is none.
        ValueError: If it is unknown.
    """
    if confidence not in SOURCES:
        raise ValueError(f"confidence must be one of {', '.join(SOURCES)}, got {confidence!r}")
    if confidence == "head" and not drafter.has_confidence_head:
        raise UnsupportedModel(
            "the drafter has no confidence head; name a proxy: --confidence draft-prob, margin or entropy"
        )


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Sequences on the device, those still being scored; rows of all tensors are the same S sequences.

    Attributes:
        rows: Position in the caller's batch, int64 [S].
        tokens: [S, T], padded on the right.
        prompt_lengths: P, int64 [S].
        last_tokens: P + R - 1, the last token of each sequence, int64 [S].
        final: Final target states of positions 0 … T-2, [S, T-1, H].
        uniforms: [S, replicates, anchors, γ, 2], or [S, replicates, 1, γ, 2] of zeros when greedy.
        context: What the drafter read.
        window: Target logits ahead; None when greedy, where the target's tokens say everything.
    """

    target: TargetForward
    temperature: float
    gamma: int
    vocab_size: int
    replicates: int
    rows: Tensor
    tokens: Tensor
    prompt_lengths: Tensor
    last_tokens: Tensor
    final: Tensor
    uniforms: Tensor
    context: DraftContext
    window: TargetWindow | None = None

    def open_window(self, width: int) -> "_Batch":
        """Return a batch of its own over the same tensors, with a window of this many positions."""
        window = None if is_greedy(self.temperature) else TargetWindow(self.target, self.final, self.last_tokens, width)
        return replace(self, window=window)

    def drop_finished(self, unfinished: Tensor) -> bool:
        """Drop finished sequences [S] once they are a good part of the batch; return whether any is unfinished."""
        left = int(unfinished.sum())
        if 0 < left < _KEEP_ABOVE * len(unfinished):
            index = unfinished.nonzero()[:, 0]
            self.context = self.context.take(index)
            for name in ("rows", "tokens", "prompt_lengths", "last_tokens", "final", "uniforms"):
                setattr(self, name, getattr(self, name)[index])
            self.window = self.window.take(index) if self.window else None
        return left > 0

    def blocks_at_once(self, batch_tokens: int) -> int:
        """Return how many blocks of every sequence one drafter pass may hold (at least 1)."""
        most = min(batch_tokens // self.gamma, MAX_LOGITS // self.vocab_size)
        return max(1, most // len(self.rows))

    def judge(self, anchors: Tensor, replicate: int) -> JudgedAnchors:
        """Judge the blocks of one trajectory a sequence at consecutive anchors [S, A]; those past the end are dead."""
        columns = anchors.shape[1]
        open_anchor = anchors < self.last_tokens[:, None]
        anchors = torch.minimum(anchors, self.last_tokens[:, None] - 1)
        if self.window is not None:
            self.window.cover(anchors[:, 0], columns - 1 + self.gamma)
        block = self.context.draft(anchors)
        return JudgedAnchors(
            rows=self.rows.repeat_interleave(columns),
            replicates=torch.full((anchors.numel(),), replicate, device=anchors.device),
            anchors=anchors.flatten(),
            open=open_anchor.flatten(),
            blocks=judge_blocks(block, self._following(anchors, replicate), self.window, self.temperature),
        )

    def _following(self, anchors: Tensor, replicate: int) -> Following:
        sequences = torch.arange(anchors.shape[0], device=anchors.device)[:, None].expand_as(anchors)
        ahead = anchors[..., None] + torch.arange(1, self.gamma + 1, device=anchors.device)
        following = self.tokens[sequences[..., None], ahead.clamp(max=self.tokens.shape[1] - 1)]
        offsets = anchors - self.prompt_lengths[:, None] if self.uniforms.shape[2] > 1 else torch.zeros_like(anchors)
        return Following(
            sequences=sequences,
            anchors=anchors,
            anchor_tokens=self.tokens.gather(1, anchors),
            tokens=following.flatten(0, 1),
            left=(self.last_tokens[:, None] - anchors).flatten(),
            uniforms=self.uniforms[sequences, replicate, offsets].flatten(0, 1),
        )


def _open_batch(
    sequences: Sequence[ResponseSequence],
    target: TargetForward,
    drafter: Drafter,
    temperature: float,
    seed: int,
    replicates: int,
    batch_tokens: int,
) -> _Batch:
    """Run the target and the drafter's reading over the batch, and draw its uniforms."""
    device = target.device
    tokens = torch.from_numpy(_pad([s.token_ids for s in sequences])).to(device)
    states = target.run_in_parts(tokens[:, :-1], [len(s.token_ids) - 1 for s in sequences], batch_tokens)
    longest = max(s.response_length for s in sequences) - 1
    if is_greedy(temperature):
        uniforms = np.zeros((len(sequences), replicates, 1, drafter.gamma, 2), dtype=np.float32)
    else:
        uniforms = np.stack(
            [
                [coupling_uniforms(seed, s.dataset, s.prompt_id, r, longest, drafter.gamma) for r in range(replicates)]
                for s in sequences
            ]
        )
    return _Batch(
        target=target,
        temperature=temperature,
        gamma=drafter.gamma,
        vocab_size=drafter.vocab_size,
        replicates=replicates,
        rows=torch.arange(len(sequences), device=device),
        tokens=tokens,
        prompt_lengths=torch.tensor([s.prompt_length for s in sequences], device=device),
        last_tokens=torch.tensor([len(s.token_ids) - 1 for s in sequences], device=device),
        final=states.final,
        uniforms=torch.from_numpy(uniforms).to(device),
        context=drafter.encode(tokens, states.features),
    )


def _pad(token_ids: Sequence[Sequence[int]]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    padded = np.zeros((len(token_ids), max(len(t) for t in token_ids)), dtype=np.int64)
    for row, ids in zip(padded, token_ids, strict=True):
        row[: len(ids)] = ids
    return padded


def _visit_loop(batch: _Batch) -> Iterator[JudgedAnchors]:
    """Yield one wave after another: each sequence's next block, then t → t + accepted + 1; replicates in turn."""
    for replicate in range(batch.replicates):
        trajectories = batch.open_window(2 * batch.gamma)
        anchors = batch.prompt_lengths
        while trajectories.drop_finished(unfinished := anchors < trajectories.last_tokens):
            if len(trajectories.rows) < len(unfinished):
                anchors = anchors[unfinished]
            judged = trajectories.judge(anchors[:, None], replicate)
            yield judged
            anchors = anchors + judged.blocks.accepted + 1


def _visit_all(batch: _Batch, batch_tokens: int) -> Iterator[JudgedAnchors]:
    """Yield every anchor of every trajectory, a chunk of consecutive anchors at a time."""
    start = 0
    while batch.drop_finished(batch.prompt_lengths + start < batch.last_tokens):
        longest = int((batch.last_tokens - batch.prompt_lengths).max()) - start
        count = min(longest, batch.blocks_at_once(batch_tokens))
        chunk = batch.open_window(count - 1 + batch.gamma)
        anchors = batch.prompt_lengths[:, None] + start + torch.arange(count, device=batch.tokens.device)
        for replicate in range(batch.replicates):
            yield chunk.judge(anchors, replicate)
        start += count
