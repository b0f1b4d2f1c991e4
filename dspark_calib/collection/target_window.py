"""Target logits of the positions ahead, projected once each and in large products.

A round needs the target's logits up to its first rejection, so over a response every position is needed
about once, but a few rows at a time, and a product of few rows costs almost what one of a hundred does (it
reads the whole vocabulary matrix). The window projects the next positions of all sequences that run short,
together, and keeps them in a ring.
"""

import torch
from torch import Tensor

from dspark_calib.collection.target_states import TargetForward


class TargetWindow:
    """Logits of `width` consecutive positions of each of S sequences, moving forward.

    Args:
        target: Projects final states to logits.
        final: Final target states, [S, n, H].
        ends: First position of each sequence whose logits nobody needs, int64 [S].
        width: Positions held per sequence; memory is S · width · V logits.
    """

    def __init__(self, target: TargetForward, final: Tensor, ends: Tensor, width: int) -> None:
        self._target, self._final, self._ends, self._width = target, final, ends, width
        self._known_until = torch.zeros_like(ends)
        self._ring = final.new_empty(0)

    def cover(self, first: Tensor, count: int) -> None:
        """Make positions first … first + count - 1 available (first: int64 [S], never decreasing; count ≤ width)."""
        positions = first[:, None] + torch.arange(self._width, device=first.device)
        short = self._known_until < torch.minimum(first + count, self._ends)
        missing = short[:, None] & (positions >= self._known_until[:, None]) & (positions < self._ends[:, None])
        rows, offsets = missing.nonzero(as_tuple=True)
        if not rows.numel():
            return
        wanted = positions[rows, offsets]
        logits = self._target.logits(self._final[rows, wanted])
        if not self._ring.numel():
            self._ring = logits.new_empty((len(first), self._width, logits.shape[-1]))
        self._ring[rows, wanted % self._width] = logits
        self._known_until = torch.where(short, first + self._width, self._known_until)

    def logits(self, sequences: Tensor, positions: Tensor) -> Tensor:
        """Return logits [m, V] at covered positions [m] of sequences [m], a copy."""
        return self._ring[sequences, positions % self._width]

    def take(self, rows: Tensor) -> "TargetWindow":
        """Return the window of these sequences only (rows: int64 [S'])."""
        window = TargetWindow(self._target, self._final[rows], self._ends[rows], self._width)
        window._known_until = self._known_until[rows]
        window._ring = self._ring[rows] if self._ring.numel() else self._ring
        return window
