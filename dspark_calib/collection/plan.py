"""Planning a collection without loading a model: prompts, responses, batches, and what the trace will be."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dspark_calib.collection.batches import Batch, cut_into_batches
from dspark_calib.collection.chat_template import Prompt, tokenize_prompts
from dspark_calib.collection.journal import Recipe
from dspark_calib.collection.prompts import PromptFile, hash_prompt_file, read_prompts
from dspark_calib.collection.responses.response_file import (
    RecordedResponse,
    match_responses,
    prompts_of_responses,
    read_response_file,
)
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target import TargetDescription
from dspark_calib.errors import PromptFileError


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionPlan:
    """What is to be collected.

    Attributes:
        batches: The work, in trace order.
        prompt_files: sha256 by dataset of what the prompts were read from.
        notes: Sentences for the trace.
    """

    batches: tuple[Batch, ...]
    prompt_files: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def prompts(self) -> int:
        """Prompts of all batches."""
        return sum(len(batch.prompts) for batch in self.batches)


def plan_writing(
    files: Sequence[PromptFile],
    target: TargetDescription,
    *,
    max_new_tokens: int,
    batch_tokens: int,
    limit: int | None = None,
    notes: tuple[str, ...] = (),
) -> CollectionPlan:
    """Plan a collection whose responses are still to be written.

    Args:
        files: Prompt files; at least one.
        target: Gives the chat template and the longest sequence.
        max_new_tokens: Tokens after which a response is cut.
        batch_tokens: Most padded tokens of a batch.
        limit: Most prompts of a file.
        notes: Sentences for the trace.

    Raises:
        PromptFileError: If a file has a broken line, or a prompt leaves no room for its response.
    """
    prompts = _read_all(files, target, limit)
    for prompt in prompts:
        _check_length(prompt, len(prompt.token_ids) + max_new_tokens, f"with --max-new-tokens {max_new_tokens}", target)
    return CollectionPlan(
        batches=tuple(cut_into_batches(prompts, batch_tokens, max_new_tokens=max_new_tokens)),
        prompt_files={file.dataset: hash_prompt_file(file) for file in files},
        notes=notes,
    )


def plan_recorded(
    path: Path,
    files: Sequence[PromptFile],
    target: TargetDescription,
    *,
    temperature: float,
    batch_tokens: int,
    limit: int | None = None,
    domain_of: Mapping[str, str] | None = None,
) -> CollectionPlan:
    """Plan a collection whose responses lie in a file.

    Args:
        path: Response file.
        files: Prompt files; without any, the prompts are those of the response file.
        target: Gives the chat template, the stop tokens and the longest sequence.
        temperature: τ of this run, which must be that of every response.
        batch_tokens: Most padded tokens of a batch.
        limit: Most prompts of a file, or of a dataset of the response file.
        domain_of: Domain by dataset, where there is no prompt file.

    Raises:
        PromptFileError: If a prompt file has a broken line.
        ResponseError: If a line is broken or a response does not belong to its prompt, to the temperature or to
            the target's vocabulary.
    """
    recorded = read_response_file(path, target.vocab_size)
    if files:
        prompts = _read_all(files, target, limit)
        prompt_files = {file.dataset: hash_prompt_file(file) for file in files}
    else:
        prompts = prompts_of_responses(recorded, domain_of or {}, limit)
        prompt_files = dict.fromkeys({prompt.dataset for prompt in prompts}, _sha256(path))
    sequences = match_responses(prompts, recorded, temperature, target.stop_token_ids)
    for prompt, sequence in zip(prompts, sequences, strict=True):
        _check_length(prompt, len(sequence.token_ids), "with its response", target)
    return CollectionPlan(
        batches=tuple(cut_into_batches(prompts, batch_tokens, responses=sequences)),
        prompt_files=prompt_files,
        notes=_notes_on(path, recorded, sequences),
    )


def _read_all(files: Sequence[PromptFile], target: TargetDescription, limit: int | None) -> list[Prompt]:
    if not files:
        raise PromptFileError("no prompts given; pass --prompts FILE")
    texts = [text for file in files for text in read_prompts(file, limit)]
    return tokenize_prompts(texts, target.tokenizer, str(target.checkpoint.name))


def _check_length(prompt: Prompt, length: int, what: str, target: TargetDescription) -> None:
    if target.max_length is not None and length > target.max_length:
        raise PromptFileError(
            f"prompt {prompt.name}: {len(prompt.token_ids)} tokens, {length} {what}, but "
            f"{target.checkpoint.name} takes {target.max_length}; shorten it or leave it out"
        )


def _notes_on(
    path: Path, recorded: Sequence[RecordedResponse], sequences: Sequence[ResponseSequence]
) -> tuple[str, ...]:
    notes = [f"responses read from {path.name}, sha256 {_sha256(path)}"]
    if unused := len(recorded) - len(sequences):
        notes.append(f"{unused} responses of {path.name} belong to no prompt of this collection and were passed over")
    return tuple(notes)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differing_fields(old: Recipe, new: Recipe) -> list[str]:
    """Return `field: old, now new` for every field that differs."""
    names = sorted({*old, *new})
    return [f"{name}: {old.get(name)!r}, now {new.get(name)!r}" for name in names if old.get(name) != new.get(name)]
