"""From conversation to tokens: the target's own chat template, as DeepSpec's evaluator applies it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dspark_calib.collection.prompts import PromptText
from dspark_calib.errors import PromptFileError, UnsupportedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt as the target reads it.

    Attributes:
        dataset: Evaluation set.
        prompt_id: Unique within the dataset.
        domain: math, code, chat or the user's word; None where nobody said.
        token_ids: P token ids, at least one.
    """

    dataset: str
    prompt_id: str
    domain: str | None
    token_ids: tuple[int, ...]

    @property
    def name(self) -> str:
        """What messages call this prompt."""
        return f"{self.dataset}/{self.prompt_id}"


def tokenize_prompts(texts: Sequence[PromptText], tokenizer: Any, target_name: str) -> list[Prompt]:
    """Apply the chat template (generation prompt on, thinking off) and tokenise without further special tokens.

    Args:
        texts: Conversations.
        tokenizer: The target's, with a chat template.
        target_name: For messages.

    Raises:
        UnsupportedModel: If the tokenizer has no chat template.
        PromptFileError: If the template refuses a conversation or makes no token of it.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UnsupportedModel(
            f"{target_name}: its tokenizer has no chat template; use an instruction-tuned target, or collect from "
            "--responses FILE with prompt_token_ids"
        )
    rendered = [_render(text, tokenizer) for text in texts]
    ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    return [_prompt(text, row) for text, row in zip(texts, ids, strict=True)]


def _render(text: PromptText, tokenizer: Any) -> str:
    messages = [asdict(message) for message in text.messages]
    try:
        rendered: str = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
    except Exception as error:  # a template is the model author's program and may raise anything
        raise PromptFileError(f"{text.where}, field `messages`: the chat template refuses it ({error})") from error
    return rendered


def _prompt(text: PromptText, ids: Sequence[int]) -> Prompt:
    if not ids:
        raise PromptFileError(f"{text.where}: the chat template makes no token of it")
    return Prompt(dataset=text.dataset, prompt_id=text.prompt_id, domain=text.domain, token_ids=tuple(ids))
