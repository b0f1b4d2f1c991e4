"""Independent observations out of a stream of rounds: one a prompt, in the order in which prompts arrived.

Rounds of one prompt resemble each other, so a sequential test may count a prompt once. A prompt is closed when
it has given enough rounds or has been quiet; prompts are handed on first come, first served, because handing
on whatever closes first would show short responses before long ones.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dspark_calib.trace.clusters import BLOCK_ROUNDS

Floats = npt.NDArray[np.float64]

MOST_ROUNDS = 100  # of one prompt; what follows adds little and would hold others up
QUIET_ROUNDS = 500  # of other prompts without one of its own, after which a prompt counts as finished


class _Open:
    __slots__ = ("counts", "last", "rounds", "sums")

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.sums = np.zeros(shape)
        self.counts = np.zeros(shape[-1])
        self.rounds = 0
        self.last = 0


class PromptUnits:
    """Averages the rounds of each prompt.

    Args:
        shape: [statistics, γ] of what a round contributes.
        quiet: Rounds without one of a prompt's own after which it is finished.
    """

    def __init__(self, shape: tuple[int, int], quiet: int = QUIET_ROUNDS) -> None:
        self._shape = shape
        self._quiet = quiet
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._done: set[str] = set()
        self._time = 0
        self._unnamed = 0
        self._ready: deque[tuple[Floats, Floats]] = deque()

    def add(self, prompt: str | None, values: Floats, seen: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Take one round; yield (means, counts) of the prompts that this closes.

        Args:
            prompt: Its id; None joins blocks of 100 rounds in arrival order.
            values: Shape [statistics, γ]; 0 where unseen.
            seen: 1 where the position's label is known, shape [γ].
        """
        self._time += 1
        name = self._block_name() if prompt is None else f"prompt {prompt}"
        if name not in self._done:
            unit = self._open.get(name) or self._open.setdefault(name, _Open(self._shape))
            unit.last = self._time
            if unit.rounds < MOST_ROUNDS:
                unit.rounds += 1
                unit.sums += values
                unit.counts += seen
        yield from self._closed()

    def finish(self) -> Iterator[tuple[Floats, Floats]]:
        """Close everything, for a source that has ended."""
        while self._open:
            yield self._pop()

    def _closed(self) -> Iterator[tuple[Floats, Floats]]:
        while self._open:
            first = next(iter(self._open.values()))
            if first.rounds < MOST_ROUNDS and self._time - first.last <= self._quiet:
                return
            yield self._pop()

    def _pop(self) -> tuple[Floats, Floats]:
        name, unit = self._open.popitem(last=False)
        self._done.add(name)
        return unit.sums / np.maximum(unit.counts, 1.0), unit.counts

    def _block_name(self) -> str:
        name = f"block {self._unnamed // BLOCK_ROUNDS}"
        self._unnamed += 1
        return name
