"""A prompt and its response as token ids: what scoring takes."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSequence:
    """One response with its prompt.

    Attributes:
        dataset: Evaluation set.
        domain: math, code, chat or the user's word; None where unknown.
        prompt_id: Unique within the dataset.
        token_ids: Prompt and response; the stop token included iff the target wrote it.
        prompt_length: P, tokens of the prompt, at least 1.
        ending: `eos`, `length`, or `unknown` (judged like `length`: nothing past the end is observed).
    """

    dataset: str
    domain: str | None
    prompt_id: str
    token_ids: Sequence[int]
    prompt_length: int
    ending: str

    @property
    def response_length(self) -> int:
        """R, tokens of the response."""
        return len(self.token_ids) - self.prompt_length
