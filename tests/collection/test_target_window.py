"""The window of target logits: right rows, and no row projected twice."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from dspark_calib.collection.target_window import TargetWindow

SEQUENCES, LENGTH, HIDDEN, V, AHEAD = 5, 60, 4, 11, 4


class CountingTarget:
    """A vocabulary projection that counts its rows."""

    def __init__(self) -> None:
        self.matrix = torch.randn(V, HIDDEN, generator=torch.Generator().manual_seed(0))
        self.rows = 0

    def logits(self, final: Tensor) -> Tensor:
        """Project and count."""
        self.rows += final.shape[0]
        return linear(final, self.matrix)


def test_a_walk_reads_the_right_rows_and_projects_each_once() -> None:
    """Sequences that jump ahead by random steps, some dropped on the way, read what a full projection holds."""
    generator = torch.Generator().manual_seed(1)
    final = torch.randn(SEQUENCES, LENGTH, HIDDEN, generator=generator)
    ends = torch.tensor([60, 33, 47, 60, 12])
    target: Any = CountingTarget()
    window = TargetWindow(target, final, ends, 2 * AHEAD)
    rows, first = torch.arange(SEQUENCES), torch.tensor([3, 0, 7, 20, 2])
    started = first.clone()
    while len(rows):
        window.cover(first, AHEAD)
        for k in range(AHEAD):
            inside = (first + k < ends[rows]).nonzero()[:, 0]
            expected = linear(final[rows[inside], first[inside] + k], target.matrix)
            torch.testing.assert_close(window.logits(inside, first[inside] + k), expected)
        first = first + torch.randint(1, AHEAD + 2, (len(rows),), generator=generator)
        left = (first < ends[rows]).nonzero()[:, 0]
        if len(left) < len(rows):
            window, rows, first = window.take(left), rows[left], first[left]
    assert target.rows <= int((ends - started).sum())
