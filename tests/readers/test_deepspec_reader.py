"""DeepSpec confidence records become rounds; every row is accounted for and every fault named."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.readers.deepspec import read_deepspec
from dspark_calib.trace.rounds import concat_rounds


def write(folder: Path, *lines: str, dataset: str = "gsm8k") -> Path:
    """Write a record file where DeepSpec puts it."""
    path = folder / dataset / "confidence_records.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_records_become_rounds(tmp_path: Path) -> None:
    """Labels count as a prefix, a block cut after an EOS is observed as far as it goes, NaN rows are refused."""
    path = write(
        tmp_path,
        '{"logits": [1.5, -0.25, 3.0], "labels": [1, 1, 0]}',
        '{"logits": [0.5, 2.0], "labels": [1, 1]}',
        '{"logits": [NaN, 2.0, 1.0], "labels": [0, 0, 0]}',
        '{"logits": [1, null, 1.0], "labels": [0, 0, 0]}',
        '{"logits": [], "labels": []}',
        "",
        '{"logits": [1e300, 2.0, 1.0], "labels": [0, 0, 0]}',
        '{"logits": [9, 8, 7], "labels": [true, 0.0, 0]}',
    )
    imported = read_deepspec([path])
    rounds = concat_rounds(imported.batches)
    np.testing.assert_array_equal(rounds.confidence_logits, np.float32([[1.5, -0.25, 3], [0.5, 2, 0], [9, 8, 7]]))
    assert rounds.accepted.tolist() == [2, 2, 1]
    assert rounds.observed.tolist() == [3, 2, 3]
    assert rounds.dataset.decode() == ["gsm8k"] * 3
    assert rounds.prompt_id.decode() == [None] * 3
    assert imported.account.balances
    assert imported.account.read == 7
    assert dict(imported.account.refused) == {"no position in the block": 1, "logit not finite": 3}
    assert imported.provenance.refused == dict(imported.account.refused)
    assert imported.provenance.source_files == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    assert any("blocks of 100 rounds" in note for note in imported.provenance.notes)


def test_golden_rounds_come_back(tmp_path: Path) -> None:
    """A thousand random records written as DeepSpec writes them give the same logits, accepted and observed."""
    rng = np.random.default_rng(5)
    logits = rng.normal(1, 2, (1000, 7)).astype(np.float32)
    accepted = rng.integers(0, 8, 1000)
    cut = np.where((accepted > 0) & (accepted < 7) & (rng.random(1000) < 0.2), accepted, 7)
    lines = [
        json.dumps({"logits": z[:n].tolist(), "labels": [float(k < a) for k in range(n)]})
        for z, a, n in zip(logits, accepted.tolist(), cut.tolist(), strict=True)
    ]
    imported = read_deepspec([write(tmp_path, *lines)])
    rounds = concat_rounds(imported.batches)
    seen = np.arange(7) < cut[:, None]
    np.testing.assert_array_equal(rounds.confidence_logits[seen], logits[seen])
    assert rounds.accepted.tolist() == accepted.tolist()
    assert rounds.observed.tolist() == cut.tolist()
    assert imported.account.balances


@pytest.mark.parametrize(
    ("line", "culprit"),
    [
        ('{"logits": [1, 2, 3], "labels": [1, 0, 1]}', "line 2, labels: a 1 follows a 0"),
        ('{"logits": [1, 2, 3], "labels": [1, 0]}', "line 2: 3 logits but 2 labels"),
        ('{"logits": [1, 2], "labels": [1, 0]}', "2 positions with a rejection where other blocks have 3"),
        ('{"logits": [1, 2, 3], "labels": [1, 0.5, 0]}', "only 0 and 1"),
        ('{"logits": [1, 2, 3], "labels": [1, [], 0]}', "only 0 and 1"),
        ('{"logits": [1, "2", 3], "labels": [1, 0, 0]}', "expected a number, found '2'"),
        ('{"logits": [1, true, 3], "labels": [1, 0, 0]}', "expected a number, found True"),
        ('{"confidences": [1]}', "lists logits and labels, found 'confidences'"),
        ("[1, 2]", "lists logits and labels"),
        ('{"logits": [1', "line 2: not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"logits": [' + "1" * 5000 + '], "labels": [0]}', "line 2: not JSON"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, culprit: str) -> None:
    """File, line and field stand in the message."""
    path = write(tmp_path, '{"logits": [1, 2, 3], "labels": [1, 0, 0]}', line)
    with pytest.raises(TraceFormatError) as raised:
        read_deepspec([path])
    assert culprit in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    """A line over the limit stops the import instead of filling memory."""
    with pytest.raises(TraceFormatError, match="longer than"):
        read_deepspec([write(tmp_path, " " * 50 + "1" * (1 << 20))])


def test_nothing_usable_lists_the_reasons(tmp_path: Path) -> None:
    """A file of refused rows, and an empty one, are errors that say why."""
    with pytest.raises(TraceFormatError, match="logit not finite: 1"):
        read_deepspec([write(tmp_path, '{"logits": [NaN], "labels": [0]}')])
    with pytest.raises(TraceFormatError, match="no usable round"):
        read_deepspec([write(tmp_path, "", dataset="empty")])


def test_the_same_file_twice_is_refused(tmp_path: Path) -> None:
    """A copy under another name would be counted twice."""
    line = '{"logits": [1, 2, 3], "labels": [1, 0, 0]}'
    with pytest.raises(TraceFormatError, match="the same content as"):
        read_deepspec([write(tmp_path, line), write(tmp_path, line, dataset="copy")])


def test_a_missing_file_and_one_in_latin_1(tmp_path: Path) -> None:
    """What cannot be read is named."""
    with pytest.raises(TraceFormatError, match="cannot be read"):
        read_deepspec([tmp_path / "absent.jsonl"])
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'{"caf\xe9": 1}\n')
    with pytest.raises(TraceFormatError, match="line 1: not UTF-8"):
        read_deepspec([path])
