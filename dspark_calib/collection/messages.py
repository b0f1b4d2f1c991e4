"""What a collection tells whoever watches it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a collection is.

    Attributes:
        batches_done: Batches finished, those of an earlier run included.
        batches: All batches.
        prompts_done: Prompts finished, with the finished share of those in hand.
        prompts: All prompts.
        rounds: Rounds written by this run.
        seconds: Since this run began to load its models.
    """

    batches_done: int
    batches: int
    prompts_done: float
    prompts: int
    rounds: int
    seconds: float

    @property
    def rounds_per_second(self) -> float:
        """Rounds written by this run over its time."""
        return self.rounds / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A sentence for the person who waits."""

    text: str


Watcher = Callable[[Progress | Remark], None]


def ignore(_: Progress | Remark) -> None:
    """Watch nothing."""
