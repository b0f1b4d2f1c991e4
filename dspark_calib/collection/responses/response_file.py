"""Responses that were written elsewhere: a JSONL file, every line checked against its prompt."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.law import is_greedy
from dspark_calib.collection.responses.response import cut_at_stop
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.errors import ResponseError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedResponse:
    """One line of a response file.

    Attributes:
        dataset: Evaluation set.
        prompt_id: Unique within the dataset.
        prompt_token_ids: P token ids the response was written to.
        response_token_ids: R token ids, at least one; the stop token included iff it was produced.
        temperature: τ it was sampled at; 0 is greedy.
        where: File and line, for messages.
    """

    dataset: str
    prompt_id: str
    prompt_token_ids: tuple[int, ...]
    response_token_ids: tuple[int, ...]
    temperature: float
    where: str


def read_response_file(path: Path, vocab_size: int) -> list[RecordedResponse]:
    """Read `dataset, prompt_id, prompt_token_ids, response_token_ids, temperature` line by line.

    Args:
        path: JSONL file.
        vocab_size: Of the target; larger token ids are refused.

    Raises:
        ResponseError: Naming file, line and field.
    """
    responses: list[RecordedResponse] = []
    first_seen: dict[tuple[str, str], str] = {}
    for where, row in _rows(path):
        response = RecordedResponse(
            dataset=_text(row, "dataset", where),
            prompt_id=_text(row, "prompt_id", where),
            prompt_token_ids=_token_ids(row, "prompt_token_ids", vocab_size, where),
            response_token_ids=_token_ids(row, "response_token_ids", vocab_size, where),
            temperature=_temperature(row, where),
            where=where,
        )
        key = (response.dataset, response.prompt_id)
        if key in first_seen:
            _refuse(where, "prompt_id", f"{response.prompt_id!r} was answered already at {first_seen[key]}")
        first_seen[key] = where
        responses.append(response)
    if not responses:
        raise ResponseError(f"{path}: holds no responses")
    return responses


def prompts_of_responses(
    responses: Iterable[RecordedResponse], domain_of: Mapping[str, str], limit: int | None = None
) -> list[Prompt]:
    """Take the prompts from the responses themselves, dataset by dataset, where no prompt file is given.

    Args:
        responses: Every line of the file.
        domain_of: Domain by dataset.
        limit: Most prompts of a dataset.
    """
    by_dataset: dict[str, list[Prompt]] = {}
    for response in responses:
        prompts = by_dataset.setdefault(response.dataset, [])
        if limit is None or len(prompts) < limit:
            prompts.append(
                Prompt(
                    dataset=response.dataset,
                    prompt_id=response.prompt_id,
                    domain=domain_of.get(response.dataset),
                    token_ids=response.prompt_token_ids,
                )
            )
    return [prompt for prompts in by_dataset.values() for prompt in prompts]


def match_responses(
    prompts: Sequence[Prompt],
    responses: Iterable[RecordedResponse],
    temperature: float,
    stop_token_ids: Sequence[int],
) -> list[ResponseSequence]:
    """Give every prompt its response.

    Args:
        prompts: In trace order.
        responses: In any order; those of other prompts are passed over.
        temperature: τ of this run.
        stop_token_ids: Tokens that end a response.

    Raises:
        ResponseError: If a prompt has none, or its response has another prompt, another temperature or goes on
            after a stop token.
    """
    found = {(response.dataset, response.prompt_id): response for response in responses}
    missing = [prompt.name for prompt in prompts if (prompt.dataset, prompt.prompt_id) not in found]
    if missing:
        raise ResponseError(
            f"{len(missing)} of {len(prompts)} prompts have no response, such as {missing[0]}; add them to the file "
            "or leave these prompts out"
        )
    return [_match(p, found[p.dataset, p.prompt_id], temperature, stop_token_ids) for p in prompts]


def _match(
    prompt: Prompt, response: RecordedResponse, temperature: float, stop_token_ids: Sequence[int]
) -> ResponseSequence:
    if _comparable(response.temperature) != _comparable(temperature):
        _refuse(
            response.where,
            "temperature",
            f"written at {response.temperature:g}, but this run judges at {temperature:g}; "
            f"pass --temperature {response.temperature:g}",
        )
    if response.prompt_token_ids != prompt.token_ids:
        _refuse(
            response.where,
            "prompt_token_ids",
            f"not the tokens the target's chat template makes of prompt {prompt.name} "
            f"({_difference(response.prompt_token_ids, prompt.token_ids)})",
        )
    sequence = cut_at_stop(prompt, response.response_token_ids, stop_token_ids)
    after_stop = len(response.response_token_ids) - sequence.response_length
    if after_stop:
        _refuse(
            response.where,
            "response_token_ids",
            f"{after_stop} tokens follow the stop token {sequence.token_ids[-1]}; end the response there",
        )
    return sequence


def _comparable(temperature: float) -> float:
    return 0.0 if is_greedy(temperature) else round(temperature, 9)


def _difference(found: Sequence[int], expected: Sequence[int]) -> str:
    for index, (a, b) in enumerate(zip(found, expected, strict=False)):
        if a != b:
            return f"token {index}: {a} instead of {b}"
    return f"{len(found)} tokens instead of {len(expected)}"


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ResponseError(f"{path}: cannot be read ({error}); check --responses") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ResponseError(f"{where}: not JSON ({error}); mend or remove the line") from error
        if not isinstance(row, dict):
            raise ResponseError(f"{where}: expected a JSON object, found {type(row).__name__}")
        yield where, row


def _text(row: dict[str, Any], field: str, where: str) -> str:
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        _refuse(where, field, f"expected text, found {value!r}")
    return str(value)


def _token_ids(row: dict[str, Any], field: str, vocab_size: int, where: str) -> tuple[int, ...]:
    value = row.get(field)
    if not isinstance(value, list) or not value:
        _refuse(where, field, "expected a list of token ids, at least one")
    for index, token in enumerate(value):
        if type(token) is not int or not 0 <= token < vocab_size:
            _refuse(where, field, f"entry {index} is {token!r}, not a token id of the target (0 … {vocab_size - 1})")
    return tuple(value)


def _temperature(row: dict[str, Any], where: str) -> float:
    value = row.get("temperature")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        _refuse(where, "temperature", f"expected a number ≥ 0 (0 is greedy), found {value!r}")
    return float(value)


def _refuse(where: str, field: str, what: str) -> NoReturn:
    raise ResponseError(f"{where}, field `{field}`: {what}")
