"""What every worker is told about a collection, whichever process it runs in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.sequences import ResponseSequence

Tick = Callable[[float], None]
"""Told the share of the batch in hand that is done, 0 … 1."""


class ResponseSource(Protocol):
    """Writes responses to prompts; it travels to workers, so it can be pickled."""

    @property
    def is_the_target(self) -> bool:
        """Whether the loaded target itself writes, so that nobody need check that it did."""
        ...

    def respond(self, model: Any, prompts: Sequence[Prompt], tick: Tick) -> list[ResponseSequence]:
        """Return one response a prompt, in order.

        Args:
            model: The loaded target.
            prompts: A batch.
            tick: Told how far the batch is.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionJob:
    """The models to load and the law to judge by.

    Attributes:
        target: Hub name, folder or GGUF file.
        drafter: Hub name or folder.
        device: `auto` or a torch device.
        dtype: `auto`, `float32`, `bfloat16` or `float16`.
        trust_remote_code: Whether code that lies with the target may run.
        source: Writes responses; None where the batches carry them.
        temperature: Sampling temperature τ of the responses; below 1e-5 greedy.
        anchors: `loop` or `all`.
        confidence: `head`, `draft-prob`, `margin` or `entropy`.
        replicates: Trajectories a response.
        seed: Of generation and coupling.
        batch_tokens: Bound on the tokens of one batch and of one forward.
        threads: CPU threads of every worker; the same for all, because sums in another order differ in the last bit.
    """

    target: str
    drafter: str
    device: str
    dtype: str
    trust_remote_code: bool
    source: ResponseSource | None
    temperature: float
    anchors: str
    confidence: str
    replicates: int
    seed: int
    batch_tokens: int
    threads: int
