"""Rounds of a growing file: both forms, half-written lines, and every fault named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.readers.live_rounds import follow_lines, iter_live_rounds, parse_live_round


def test_both_forms_give_the_same_round() -> None:
    """accepted and labels say the same; prompt_id and observed have defaults."""
    own = parse_live_round('{"confidence_logits": [1, 2.5, 3], "accepted": 1, "prompt_id": "r"}', "f")
    deepspec = parse_live_round('{"logits": [1, 2.5, 3], "labels": [1, 0, 0]}', "f")
    for live in (own, deepspec):
        assert (live.logits.tolist(), live.accepted, live.observed) == ([1, 2.5, 3], 1, 3)
    assert (own.prompt_id, deepspec.prompt_id) == ("r", None)


@pytest.mark.parametrize(
    ("line", "culprit"),
    [
        ("{", "not JSON"),
        ("[]", "expected confidence_logits and accepted"),
        ('{"confidence_logits": [1]}', "accepted: expected a whole number"),
        ('{"confidence_logits": [], "accepted": 0}', "0 logits"),
        ('{"confidence_logits": [NaN], "accepted": 0}', "not finite"),
        ('{"confidence_logits": [1e300], "accepted": 0}', "not finite"),
        ('{"confidence_logits": ["1"], "accepted": 0}', "expected a number"),
        ('{"confidence_logits": [1], "accepted": 2}', "accepted: expected a whole number from 0 to 1"),
        ('{"confidence_logits": [1, 2], "accepted": 2, "observed": 1}', "from 0 to 1"),
        ('{"confidence_logits": [1], "accepted": 0, "prompt_id": 3}', "prompt_id: expected text"),
        ('{"logits": [1, 2], "labels": [0, 1]}', "a 1 follows a 0"),
        ('{"logits": [1, 2], "labels": [0]}', "expected 2 values"),
    ],
)
def test_a_broken_line_is_named(line: str, culprit: str) -> None:
    """Line and field stand in the message; blank lines count but are skipped."""
    with pytest.raises(TraceFormatError, match="f, line 2") as raised:
        list(iter_live_rounds(["\n", line], "f"))
    assert culprit in str(raised.value)


@given(st.text(max_size=30) | st.binary(max_size=30).map(lambda b: b.decode("latin-1")))
def test_no_line_crashes_the_parser(line: str) -> None:
    """A round or one clear line."""
    try:
        parse_live_round(line, "f")
    except TraceFormatError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    """What is appended later is read; nothing is parsed before its line is complete."""
    path = tmp_path / "live.jsonl"
    path.write_text("one\ntw")
    additions = iter(["o\nthr", "ee\n"])

    def wait() -> bool:
        more = next(additions, None)
        if more is not None:
            with path.open("a") as file:
                file.write(more)
        return more is not None

    assert list(follow_lines(path, wait)) == ["one\n", "two\n", "three\n"]


def test_a_file_that_shrinks_or_never_ends_a_line(tmp_path: Path) -> None:
    """A rotated file and one without line ends stop with a reason."""
    path = tmp_path / "live.jsonl"
    path.write_text("one\ntwo\n")

    def rotate() -> bool:
        path.write_text("")
        return True

    with pytest.raises(TraceFormatError, match="shrank"):
        list(follow_lines(path, rotate))
    path.write_text("1" * (3 << 20))
    with pytest.raises(TraceFormatError, match="longer than"):
        list(follow_lines(path, lambda: False))
