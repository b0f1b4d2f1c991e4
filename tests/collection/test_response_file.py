"""Responses from a file: which are taken, and what is said about those that are not."""

import json
from pathlib import Path

import pytest

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.responses.response_file import match_responses, prompts_of_responses, read_response_file
from dspark_calib.errors import ResponseError

STOP = 9
PROMPT = Prompt(dataset="d", prompt_id="a", domain="math", token_ids=(1, 2))
ROW = {
    "dataset": "d", "prompt_id": "a", "prompt_token_ids": [1, 2], "response_token_ids": [3, 4, STOP], "temperature": 1.0
}  # fmt: skip


def write(path: Path, *rows: object) -> Path:
    """A response file of these rows; text rows are written as they stand."""
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_a_response_is_joined_to_its_prompt(tmp_path: Path) -> None:
    """The ending is read off the tokens: `eos` with a stop token at the end, else `length`."""
    other = ROW | {"prompt_id": "b", "response_token_ids": [3]}
    recorded = read_response_file(write(tmp_path / "r.jsonl", other, ROW), vocab_size=10)
    (sequence,) = match_responses([PROMPT], recorded, 1.0, (STOP,))
    assert (sequence.token_ids, sequence.prompt_length, sequence.ending) == ((1, 2, 3, 4, STOP), 2, "eos")
    assert sequence.domain == "math"
    prompts = prompts_of_responses(recorded, {"d": "code"})
    assert [(p.prompt_id, p.domain) for p in prompts] == [("b", "code"), ("a", "code")]
    assert match_responses(prompts, recorded, 1.0, (STOP,))[0].ending == "length"
    assert len(prompts_of_responses(recorded, {}, limit=1)) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"response_token_ids": []}, "field `response_token_ids`: expected a list of token ids, at least one"),
        ({"response_token_ids": [3, 10]}, "entry 1 is 10, not a token id of the target (0 … 9)"),
        ({"response_token_ids": [3, True]}, "entry 1 is True"),
        ({"prompt_token_ids": None}, "field `prompt_token_ids`"),
        ({"prompt_id": None}, "field `prompt_id`"),
        ({"temperature": -1}, "field `temperature`"),
        ({"temperature": "1"}, "field `temperature`"),
        ({"temperature": 0.7}, "written at 0.7, but this run judges at 1; pass --temperature 0.7"),
        ({"temperature": 0}, "written at 0, but this run judges at 1"),
        ({"prompt_token_ids": [1, 3]}, "of prompt d/a (token 1: 3 instead of 2)"),
        ({"prompt_token_ids": [1, 2, 3]}, "3 tokens instead of 2"),
        ({"response_token_ids": [STOP, 3, 4]}, "2 tokens follow the stop token 9"),
    ],
)
def test_a_response_that_does_not_belong_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    """The message names file, line and field."""
    path = write(tmp_path / "r.jsonl", ROW | {"prompt_id": "x"}, ROW | change)
    with pytest.raises(ResponseError) as caught:
        match_responses([PROMPT], read_response_file(path, vocab_size=10), 1.0, (STOP,))
    assert f"{path}, line 2" in str(caught.value)
    assert said in str(caught.value)


def test_doubles_gaps_and_broken_lines_are_refused(tmp_path: Path) -> None:
    """Two answers to a prompt, a prompt without one, no JSON, nothing at all, no file."""
    for rows, said in (
        ((ROW, ROW), "was answered already at"),
        (("{",), "line 1: not JSON"),
        (("3",), "expected a JSON object"),
        (("",), "holds no responses"),
    ):
        with pytest.raises(ResponseError, match=said):
            read_response_file(write(tmp_path / "r.jsonl", *rows), vocab_size=10)
    with pytest.raises(ResponseError, match="cannot be read"):
        read_response_file(tmp_path / "none.jsonl", vocab_size=10)
    recorded = read_response_file(write(tmp_path / "r.jsonl", ROW | {"prompt_id": "b"}), vocab_size=10)
    with pytest.raises(ResponseError, match="1 of 1 prompts have no response, such as d/a"):
        match_responses([PROMPT], recorded, 1.0, (STOP,))
