"""Prompt files: what is read from a line, and what is said about a broken one."""

import json
from pathlib import Path

import pytest
from disk_pair import tokenizer

from dspark_calib.collection.chat_template import tokenize_prompts
from dspark_calib.collection.prompts import Message, PromptFile, name_domains, name_prompt_files, read_prompts
from dspark_calib.errors import PromptFileError, UnsupportedModel


def write(path: Path, *rows: object) -> PromptFile:
    """A prompt file of these rows; text rows are written as they stand."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines), encoding="utf-8")
    return PromptFile(dataset="set", path=path)


def test_the_three_ways_to_write_a_prompt(tmp_path: Path) -> None:
    """`turns` gives its first text, `prompt` its text, `messages` the whole conversation."""
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    file = write(
        tmp_path / "p.jsonl", {"turns": ["one", "two"]}, {"prompt": "three", "id": 7, "domain": "code"}, "",
        {"messages": conversation, "id": "m"},
    )  # fmt: skip
    prompts = read_prompts(file)
    assert [p.messages for p in prompts] == [
        (Message(role="user", content="one"),),
        (Message(role="user", content="three"),),
        (Message(role="system", content="Be brief."), Message(role="user", content="Hi")),
    ]
    assert [p.prompt_id for p in prompts] == ["L000001", "7", "m"]
    assert [p.domain for p in prompts] == [None, "code", None]


def test_a_line_separator_inside_a_prompt_ends_no_line(tmp_path: Path) -> None:
    """U+2028 may stand bare in JSON text; a byte order mark before the first line is no part of it."""
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + '{"prompt": "a\u2028b"}\r\n{"prompt": "c"}'.encode())
    prompts = read_prompts(PromptFile(dataset="set", path=path, domain="chat"))
    assert [p.messages[0].content for p in prompts] == ["a\u2028b", "c"]
    assert prompts[1].domain == "chat"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"prompt": "a"', "line 2: not JSON"),
        ("[1]", "line 2: expected a JSON object, found list"),
        ({"question": "a"}, "line 2, field `prompt`: expected one of `turns`, `prompt`, `messages`, found question"),
        ({"turns": ["a"], "prompt": "b"}, "found turns and prompt"),
        ({"turns": []}, "line 2, field `turns`"),
        ({"turns": [3]}, "line 2, field `turns`"),
        ({"prompt": "  "}, "line 2, field `prompt`: expected text that is not empty"),
        ({"prompt": "a", "id": True}, "line 2, field `id`"),
        ({"prompt": "a", "id": "first"}, "line 2, field `id`: 'first' stands already at"),
        ({"prompt": "a", "domain": 3}, "line 2, field `domain`"),
        ({"messages": [{"role": "user"}]}, "line 2, field `messages`: turn 1"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "the last turn is the assistant's"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, row: object, said: str) -> None:
    """The message names file, line and field."""
    file = write(tmp_path / "p.jsonl", {"prompt": "a", "id": "first"}, row)
    with pytest.raises(PromptFileError) as caught:
        read_prompts(file)
    assert str(file.path) in str(caught.value)
    assert said in str(caught.value)


def test_a_missing_or_empty_or_foreign_file_is_named(tmp_path: Path) -> None:
    """A file that is absent, holds no prompt or is no text is refused."""
    binary = tmp_path / "b.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    for path, said in ((tmp_path / "none.jsonl", "cannot be read"), (binary, "not UTF-8")):
        with pytest.raises(PromptFileError, match=said):
            read_prompts(PromptFile(dataset="x", path=path))
    with pytest.raises(PromptFileError, match="holds no prompts"):
        read_prompts(write(tmp_path / "empty.jsonl", ""))


def test_limit_reads_no_further(tmp_path: Path) -> None:
    """Lines beyond the limit are not even parsed."""
    assert len(read_prompts(write(tmp_path / "p.jsonl", {"prompt": "a"}, {"prompt": "b"}, "broken"), 2)) == 2


def test_files_and_domains_have_names(tmp_path: Path) -> None:
    """`NAME=FILE`, a bare file by its stem, and domains by name; clashes and strangers are refused."""
    files = name_prompt_files(["sets/gsm8k.jsonl", "mine=b.jsonl"], ["mine=code"])
    assert [(f.dataset, f.path, f.domain) for f in files] == [
        ("gsm8k", Path("sets/gsm8k.jsonl"), None),
        ("mine", Path("b.jsonl"), "code"),
    ]
    with_equals = tmp_path / "a=b.jsonl"
    with_equals.write_text("")
    assert name_prompt_files([str(with_equals)])[0].path == with_equals
    for arguments, said in (
        ((["a/x.jsonl", "b/x.jsonl"],), "two prompt files"),
        ((["x.jsonl"], ["y=math"]), "no prompt file is called so"),
        (([],), "no prompts given"),
    ):
        with pytest.raises(PromptFileError, match=said):
            name_prompt_files(*arguments)
    with pytest.raises(PromptFileError, match="expected NAME=DOMAIN"):
        name_domains(["math"])


def test_the_chat_template_makes_the_tokens(tmp_path: Path) -> None:
    """Tokens are those of the rendered template, with no special tokens added."""
    texts = read_prompts(write(tmp_path / "p.jsonl", {"prompt": "hi"}))
    (prompt,) = tokenize_prompts(texts, tokenizer(), "tiny")
    assert tokenizer().decode(prompt.token_ids) == "u:hi\na:"
    bare = tokenizer()
    bare.chat_template = None
    with pytest.raises(UnsupportedModel, match="tiny: its tokenizer has no chat template"):
        tokenize_prompts(texts, bare, "tiny")


def test_a_template_that_refuses_a_conversation_names_the_line(tmp_path: Path) -> None:
    """Templates raise errors of their own, for instance over roles that do not alternate."""
    refusing = tokenizer()
    refusing.chat_template = "{{ raise_exception('roles must alternate') }}"
    texts = read_prompts(write(tmp_path / "p.jsonl", {"prompt": "hi"}))
    with pytest.raises(PromptFileError, match=r"line 1, field `messages`: .*roles must alternate"):
        tokenize_prompts(texts, refusing, "tiny")
