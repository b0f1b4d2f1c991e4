"""What turns tokens into a response: where it ends, and what every source of responses promises."""

from collections.abc import Sequence

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.sequences import ResponseSequence


def join_response(prompt: Prompt, tokens: Sequence[int], ending: str) -> ResponseSequence:
    """Put a response behind its prompt.

    Args:
        prompt: The prompt it answers.
        tokens: R token ids; the stop token included iff it was produced.
        ending: `eos`, `length` or `unknown`.
    """
    return ResponseSequence(
        dataset=prompt.dataset,
        domain=prompt.domain,
        prompt_id=prompt.prompt_id,
        token_ids=(*prompt.token_ids, *tokens),
        prompt_length=len(prompt.token_ids),
        ending=ending,
    )


def cut_at_stop(
    prompt: Prompt, tokens: Sequence[int], stop_token_ids: Sequence[int], otherwise: str = "length"
) -> ResponseSequence:
    """End a response after its first stop token.

    Args:
        prompt: The prompt it answers.
        tokens: What was generated, possibly beyond the stop token.
        stop_token_ids: Tokens that end a response.
        otherwise: The ending of a response without a stop token.
    """
    stops = frozenset(stop_token_ids)
    for index, token in enumerate(tokens):
        if token in stops:
            return join_response(prompt, tokens[: index + 1], "eos")
    return join_response(prompt, tokens, otherwise)
