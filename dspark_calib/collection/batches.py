"""Cutting the work: batches fixed by prompt order and a token budget before anybody gets one.

The batch is the unit of worker, part file and resume, so a trace does not depend on who did what.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.sequences import ResponseSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Neighbouring prompts that are collected together.

    Attributes:
        index: Number of the batch and of its part file, from 0.
        prompts: In trace order.
        responses: One a prompt where they are given; None where they are still to be written.
    """

    index: int
    prompts: tuple[Prompt, ...]
    responses: tuple[ResponseSequence, ...] | None = None

    def halves(self) -> tuple["Batch", "Batch"]:
        """Return the first and the second half, for a device without room for both."""
        middle = len(self.prompts) // 2
        first, second = (None, None) if self.responses is None else (self.responses[:middle], self.responses[middle:])
        return (
            Batch(index=self.index, prompts=self.prompts[:middle], responses=first),
            Batch(index=self.index, prompts=self.prompts[middle:], responses=second),
        )


def cut_into_batches(
    prompts: Sequence[Prompt],
    batch_tokens: int,
    *,
    max_new_tokens: int | None = None,
    responses: Sequence[ResponseSequence] | None = None,
) -> list[Batch]:
    """Cut prompts into batches of at most `batch_tokens` padded tokens, at least one prompt each.

    Args:
        prompts: In trace order.
        batch_tokens: Most sequences × longest sequence.
        max_new_tokens: Tokens a response may have, where it is still to be written.
        responses: One a prompt, where they are given.
    """
    if responses is None:
        if max_new_tokens is None:
            raise ValueError("cut_into_batches needs max_new_tokens or responses")
        lengths = [len(prompt.token_ids) + max_new_tokens for prompt in prompts]
    else:
        lengths = [len(response.token_ids) for response in responses]
    return [
        Batch(
            index=index,
            prompts=tuple(prompts[span]),
            responses=None if responses is None else tuple(responses[span]),
        )
        for index, span in enumerate(_spans(lengths, batch_tokens))
    ]


def _spans(lengths: Sequence[int], budget: int) -> Iterator[slice]:
    start, longest = 0, 0
    for position, length in enumerate(lengths):
        longest = max(longest, length)
        if position > start and (position + 1 - start) * longest > budget:
            yield slice(start, position)
            start, longest = position, length
    if start < len(lengths):
        yield slice(start, len(lengths))
