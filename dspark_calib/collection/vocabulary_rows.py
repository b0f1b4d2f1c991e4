"""Searches along the vocabulary axis, in two levels: over blocks of entries, then inside one block.

argmax, top-k and cumsum over 50,000 to 260,000 entries cost several times a plain reduction in torch (on
the CPU 30 times), so all of these reduce blocks first and look inside the one block that matters.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

_BLOCK = 256


def _in_blocks(rows: Tensor, fill: float) -> Tensor:
    """View [n, V] as [n, V/b, b]; a vocabulary that no power of two ≥ 32 divides is padded (a copy)."""
    size = rows.shape[1]
    block = _BLOCK
    while block > 32 and size % block:
        block //= 2
    if size % block:
        rows = pad(rows, (0, -size % block), value=fill)
    return rows.view(rows.shape[0], -1, block)


def top_two(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the highest logit, its (first) token and the second highest logit of each row.

    Args:
        logits: [n, V], V ≥ 2.

    Returns:
        Highest [n], token int64 [n], second highest [n] (equal to the highest on a tie).
    """
    blocks = _in_blocks(logits, float("-inf"))
    maxima = blocks.amax(dim=-1)
    best_block = maxima.argmax(dim=-1, keepdim=True)
    highest = maxima.gather(1, best_block)
    inside = _block_at(blocks, best_block)
    offset = inside.argmax(dim=-1, keepdim=True)
    rest_inside = inside.scatter(1, offset, float("-inf")).amax(dim=-1)
    rest_outside = maxima.scatter_(1, best_block, float("-inf")).amax(dim=-1)
    token = best_block * blocks.shape[2] + offset
    return highest[:, 0], token[:, 0], torch.maximum(rest_inside, rest_outside)


def draw_tokens(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Draw one token a row by inverse CDF: the first whose cumulative weight exceeds u times the total.

    Args:
        weights: Not negative, not necessarily normalised, [n, V]; a row of zeros gives token 0.
        uniforms: u in [0, 1), [n].

    Returns:
        int64 [n], tokens of positive weight.
    """
    blocks = _in_blocks(weights, 0.0)
    sums = blocks.sum(dim=-1).cumsum(dim=-1)
    goal = uniforms[:, None].to(sums.dtype) * sums[:, -1:]
    block = _first_above(sums, goal)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp_(min=0)), 0.0)
    inside = _block_at(blocks, block)
    offset = _first_above(inside.cumsum(dim=-1), goal - before)
    # Rounding can put the goal a hair above the block's own sum: then its last entry of positive weight is meant.
    last_positive = inside.shape[1] - 1 - (inside > 0).flip(1).int().argmax(dim=1, keepdim=True)
    return (block * blocks.shape[2] + torch.minimum(offset, last_positive))[:, 0]


def _first_above(cumulative: Tensor, goal: Tensor) -> Tensor:
    """Return the index [n, 1] of the first entry above the goal [n, 1], the last entry if none is."""
    return (cumulative <= goal).sum(dim=-1, keepdim=True).clamp_(max=cumulative.shape[1] - 1)


def _block_at(blocks: Tensor, index: Tensor) -> Tensor:
    """Return the block [n, b] at index [n, 1] of each row."""
    return blocks[torch.arange(blocks.shape[0], device=blocks.device), index[:, 0]]
