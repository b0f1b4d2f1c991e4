"""Prompts as people write them: JSONL files, checked line by line. No tokens here (see `chat_template`)."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from dspark_calib.errors import PromptFileError

_ROLES = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFile:
    """A file of prompts and what its prompts are called in the trace.

    Attributes:
        dataset: Evaluation set.
        path: JSONL file.
        domain: Domain of every prompt in it; None leaves it to the lines.
    """

    dataset: str
    path: Path
    domain: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptText:
    """A prompt before tokenisation.

    Attributes:
        dataset: Evaluation set.
        prompt_id: Unique within the dataset.
        domain: math, code, chat or the user's word; None where nobody said.
        messages: The conversation the target is to answer.
        where: File and line, for messages about this prompt.
    """

    dataset: str
    prompt_id: str
    domain: str | None
    messages: tuple[Message, ...]
    where: str


def name_prompt_files(files: Iterable[str], domains: Iterable[str] = ()) -> tuple[PromptFile, ...]:
    """Understand `[NAME=]FILE` and `NAME=DOMAIN`; without a name, the file's stem names the dataset.

    >>> name_prompt_files(["sets/gsm8k.jsonl"], ["gsm8k=math"])
    (PromptFile(dataset='gsm8k', path=PosixPath('sets/gsm8k.jsonl'), domain='math'),)

    Raises:
        PromptFileError: If there is no file, two share a name, or a domain names no file.
    """
    named = [_name_file(text) for text in files]
    if not named:
        raise PromptFileError("no prompts given; pass --prompts FILE")
    names = [file.dataset for file in named]
    for name in names:
        if names.count(name) > 1:
            raise PromptFileError(f"two prompt files are called {name!r}; name one with --prompts OTHER=FILE")
    domain_of = name_domains(domains)
    for name in domain_of:
        if name not in names:
            raise PromptFileError(f"--domain {name}=…: no prompt file is called so; there are {', '.join(names)}")
    return tuple(replace(file, domain=domain_of.get(file.dataset)) for file in named)


def _name_file(text: str) -> PromptFile:
    name, equals, file = text.rpartition("=")
    if not equals or Path(text).exists():
        return PromptFile(dataset=Path(text).stem, path=Path(text))
    if not name or not file:
        raise PromptFileError(f"--prompts {text}: expected FILE or NAME=FILE")
    return PromptFile(dataset=name, path=Path(file))


def name_domains(texts: Iterable[str]) -> dict[str, str]:
    """Understand `NAME=DOMAIN`: the domain of each dataset named.

    Raises:
        PromptFileError: If a text is something else.
    """
    pairs = [text.partition("=") for text in texts]
    for name, _, domain in pairs:
        if not name or not domain:
            raise PromptFileError(f"--domain {name}: expected NAME=DOMAIN")
    return {name: domain for name, _, domain in pairs}


def read_prompts(file: PromptFile, limit: int | None = None) -> list[PromptText]:
    """Read the prompts of a file in order.

    A line is a JSON object with `turns` (the first is used), `prompt` or `messages`, and may have `id`
    (else L000001 by line) and `domain` (the file's own domain wins). Empty lines are skipped.

    Args:
        file: The file and its names.
        limit: Read at most this many prompts; None reads all.

    Raises:
        PromptFileError: Naming file, line and field.
    """
    prompts: list[PromptText] = []
    first_seen: dict[str, str] = {}
    for number, line in _numbered_lines(file.path):
        if limit is not None and len(prompts) >= limit:
            break
        prompt = _parse_line(file, number, line)
        if prompt.prompt_id in first_seen:
            _refuse(prompt.where, "id", f"{prompt.prompt_id!r} stands already at {first_seen[prompt.prompt_id]}")
        first_seen[prompt.prompt_id] = prompt.where
        prompts.append(prompt)
    if not prompts:
        raise PromptFileError(f"{file.path}: holds no prompts")
    return prompts


def hash_prompt_file(file: PromptFile) -> str:
    """Return the sha256 of the file's bytes.

    Raises:
        PromptFileError: If it cannot be read.
    """
    try:
        with file.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise PromptFileError(f"{file.path}: cannot be read ({error.strerror})") from error


def _numbered_lines(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PromptFileError(f"{path}: cannot be read ({error.strerror}); check --prompts") from error
    except UnicodeDecodeError as error:
        raise PromptFileError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    # Not splitlines(): a prompt may hold U+2028, which JSON leaves bare and splitlines() would cut at.
    return [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]


def _parse_line(file: PromptFile, number: int, line: str) -> PromptText:
    where = f"{file.path}, line {number}"
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise PromptFileError(f"{where}: not JSON ({error}); mend or remove the line") from error
    if not isinstance(row, dict):
        raise PromptFileError(f"{where}: expected a JSON object, found {type(row).__name__}")
    return PromptText(
        dataset=file.dataset,
        prompt_id=_prompt_id(row, where, number),
        domain=file.domain or _optional_text(row, "domain", where),
        messages=_messages(row, where),
        where=where,
    )


def _prompt_id(row: dict[str, Any], where: str, number: int) -> str:
    value = row.get("id")
    if value is None:
        return f"L{number:06d}"
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        _refuse(where, "id", f"expected text or a whole number, found {value!r}")
    return str(value)


def _optional_text(row: dict[str, Any], field: str, where: str) -> str | None:
    value = row.get(field)
    if value is not None and (not isinstance(value, str) or not value):
        _refuse(where, field, f"expected text, found {value!r}")
    return value


def _messages(row: dict[str, Any], where: str) -> tuple[Message, ...]:
    given = [field for field in ("turns", "prompt", "messages") if row.get(field) is not None]
    if len(given) != 1:
        found = " and ".join(given) or ", ".join(row) or "nothing"
        _refuse(where, "prompt", f"expected one of `turns`, `prompt`, `messages`, found {found}")
    (field,) = given
    if field == "messages":
        return _conversation(row[field], where)
    return (Message(role="user", content=_first_text(row[field], field, where)),)


def _first_text(value: object, field: str, where: str) -> str:
    text = value[0] if field == "turns" and isinstance(value, list) and value else value
    if not isinstance(text, str) or not text.strip():
        expected = "a list of texts, the first not empty" if field == "turns" else "text that is not empty"
        _refuse(where, field, f"expected {expected}")
    return text


def _conversation(value: object, where: str) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        _refuse(where, "messages", "expected a list of {role, content}")
    messages = tuple(_message(item, where, number) for number, item in enumerate(value, start=1))
    if messages[-1].role == "assistant":
        _refuse(where, "messages", "the last turn is the assistant's; there is nothing left to answer")
    return messages


def _message(item: object, where: str, number: int) -> Message:
    role, content = (item.get("role"), item.get("content")) if isinstance(item, dict) else (None, None)
    if role not in _ROLES or not isinstance(content, str):
        _refuse(where, "messages", f"turn {number} is no {{role, content}} with a role of {', '.join(_ROLES)}")
    return Message(role=role, content=content)


def _refuse(where: str, field: str, what: str) -> NoReturn:
    raise PromptFileError(f"{where}, field `{field}`: {what}")
