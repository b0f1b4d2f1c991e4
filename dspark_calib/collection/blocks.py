"""Judging a set of blocks: step through the draft positions, couple each with the target's tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_calib.collection.law import couple, read_draft_rows, softmax
from dspark_calib.collection.target_window import TargetWindow
from dspark_calib.collection.vocabulary_rows import draw_tokens
from dspark_calib.drafters.drafter import DraftBlock

ROW_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Logits looked at in one go, by device: what a CPU's cache, or a GPU's memory beside the models, holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """What stands after n = S·A anchors.

    Attributes:
        sequences: Sequence of each anchor, int64 [S, A].
        anchors: t, int64 [S, A].
        anchor_tokens: The tokens there, int64 [S, A].
        tokens: The γ tokens after each anchor, int64 [n, γ]; anything where there are fewer.
        left: m, response tokens after the anchor, int64 [n].
        uniforms: In [0, 1), [n, γ, 2]: one to accept by, one to draw by; unused when greedy.
    """

    sequences: Tensor
    anchors: Tensor
    anchor_tokens: Tensor
    tokens: Tensor
    left: Tensor
    uniforms: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSlot:
    """One draft position of n blocks.

    Attributes:
        tokens: Drafts x_k, int64 [n].
        accepted: bool [n]; False where the prefix was rejected before.
        logprobs, margins, entropies: Of the draft softmax at temperature 1, [n].
        acceptance_probs: Σ min(p, q) where the prefix stands and the target's token is known, else NaN, [n].
    """

    tokens: Tensor
    accepted: Tensor
    logprobs: Tensor
    margins: Tensor
    entropies: Tensor
    acceptance_probs: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBlocks:
    """n judged blocks, on the device.

    Attributes:
        accepted: Drafts accepted, int64 [n].
        verified: Drafts the block has, int64 [n].
        draft_tokens: int64 [n, γ].
        confidence_logits: Float32 [n, γ]; None without a head.
        logprobs, margins, entropies, acceptance_probs: See `JudgedSlot`, float32 [n, γ].
    """

    accepted: Tensor
    verified: Tensor
    draft_tokens: Tensor
    confidence_logits: Tensor | None
    logprobs: Tensor
    margins: Tensor
    entropies: Tensor
    acceptance_probs: Tensor


def judge_blocks(
    block: DraftBlock, following: Following, window: TargetWindow | None, temperature: float
) -> JudgedBlocks:
    """Draft γ tokens for every block and say how many the target accepts.

    While the prefix stands, the draft is coupled with the target's own token; after the first rejection (or
    past the response) the block goes on along the drafter's own tokens, as an engine drafts before it verifies.

    Args:
        block: Opened at anchors [S, A].
        following: What stands after these anchors.
        window: Holds target logits of positions t … t+γ-1; None when greedy.
        temperature: Sampling temperature τ; below 1e-5 greedy.
    """
    standing = torch.ones_like(following.left, dtype=torch.bool)
    drafting, previous = standing, following.anchor_tokens.flatten()
    slots, confidences, drafted = [], [], []
    for k in range(following.tokens.shape[1]):
        step = block.step(k, previous.view_as(following.anchors))
        if step.drafted is not None:
            drafting = drafting & step.drafted.flatten()
        standing = standing & drafting & (following.left > k)
        slot = _judge_slot(step.logits.flatten(0, 1), k, standing, following, window, temperature)
        previous, standing = slot.tokens, slot.accepted
        slots.append(slot)
        drafted.append(drafting)
        if step.confidence_logits is not None:
            confidences.append(step.confidence_logits.flatten())
    return JudgedBlocks(
        accepted=torch.stack([s.accepted for s in slots], dim=1).sum(dim=1),
        verified=torch.stack(drafted, dim=1).sum(dim=1),
        draft_tokens=torch.stack([s.tokens for s in slots], dim=1),
        confidence_logits=torch.stack(confidences, dim=1).float() if confidences else None,
        logprobs=torch.stack([s.logprobs for s in slots], dim=1),
        margins=torch.stack([s.margins for s in slots], dim=1),
        entropies=torch.stack([s.entropies for s in slots], dim=1),
        acceptance_probs=torch.stack([s.acceptance_probs for s in slots], dim=1),
    )


def _judge_slot(
    logits: Tensor, k: int, standing: Tensor, following: Following, window: TargetWindow | None, temperature: float
) -> JudgedSlot:
    """Judge slot k of all blocks, a cacheful of rows at a time."""
    part = max(1, ROW_ELEMENTS.get(logits.device.type, ROW_ELEMENTS["cpu"]) // logits.shape[1])
    sequences, positions = following.sequences.flatten(), following.anchors.flatten() + k
    judged = []
    for i in range(0, logits.shape[0], part):
        rows = slice(i, i + part)
        if window is None:
            judged.append(_judge_greedy(logits[rows], standing[rows], following.tokens[rows, k]))
            continue
        # The target's logits are needed where the prefix stands, and only there.
        index = standing[rows].nonzero()[:, 0]
        p = softmax(window.logits(sequences[rows][index], positions[rows][index]), temperature)
        uniforms = following.uniforms[rows, k]
        judged.append(_judge_sampled(logits[rows], index, p, following.tokens[rows, k], uniforms, temperature))
    return judged[0] if len(judged) == 1 else _join(judged)


def _join(parts: Sequence[JudgedSlot]) -> JudgedSlot:
    return JudgedSlot(
        tokens=torch.cat([j.tokens for j in parts]),
        accepted=torch.cat([j.accepted for j in parts]),
        logprobs=torch.cat([j.logprobs for j in parts]),
        margins=torch.cat([j.margins for j in parts]),
        entropies=torch.cat([j.entropies for j in parts]),
        acceptance_probs=torch.cat([j.acceptance_probs for j in parts]),
    )


def _judge_greedy(logits: Tensor, standing: Tensor, target_tokens: Tensor) -> JudgedSlot:
    rows = read_draft_rows(logits)
    equal = rows.top_token == target_tokens
    return JudgedSlot(
        tokens=rows.top_token,
        accepted=standing & equal,
        logprobs=rows.log_probs(rows.top_token),
        margins=rows.margin,
        entropies=rows.entropy,
        acceptance_probs=equal.float().masked_fill_(~standing, float("nan")),
    )


def _judge_sampled(
    logits: Tensor, index: Tensor, p: Tensor, target_tokens: Tensor, uniforms: Tensor, temperature: float
) -> JudgedSlot:
    """Couple the rows `index` [m], where the prefix stands, with p [m, V]; draw the others from q."""
    rows = read_draft_rows(logits)
    weights = rows.probabilities(temperature)
    accepted = torch.zeros_like(target_tokens, dtype=torch.bool)
    alpha = torch.full_like(rows.margin, float("nan"))
    everywhere = len(index) == len(logits)
    q = weights if everywhere else weights[index]
    accepted[index], alpha[index] = couple(q, p, target_tokens[index], uniforms[index, 0])
    if not everywhere:
        weights[index] = q
    tokens = torch.where(accepted, target_tokens, draw_tokens(weights, uniforms[:, 1]))
    return JudgedSlot(
        tokens=tokens,
        accepted=accepted,
        logprobs=rows.log_probs(tokens),
        margins=rows.margin,
        entropies=rows.entropy,
        acceptance_probs=alpha,
    )
