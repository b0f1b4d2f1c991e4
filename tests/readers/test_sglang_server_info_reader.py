"""SGLang's step records become rounds, with the rounding of their confidences kept."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_calib.errors import TraceFormatError
from dspark_calib.survival import sigmoid
from dspark_calib.trace.readers.rounding import rounded_logits, rounding_interval
from dspark_calib.trace.readers.sglang_server_info import read_sglang_server_info
from dspark_calib.trace.rounds import concat_rounds

REQUEST: dict[str, Any] = {
    "req_pool_index": 1,
    "prefix_len": 40,
    "verify_len": 4,
    "acc_len": 2,
    "correct_drafts": 1,
    "cap_trim": 0,
    "bonus_token": 7,
    "draft_tokens": [11, 12, 13],
    "rid": "b",
    "confidence": [0.9, 0.5, 0.25],
    "survival": [0.9, 0.45, 0.1125],
}


def request(**changes: Any) -> dict[str, Any]:
    """Return a request record with some fields changed, or left out where None."""
    return {key: value for key, value in (REQUEST | changes).items() if value is not None}


def info(*requests: dict[str, Any], mode: str = "compact", gamma: Any = 3, **more: Any) -> dict[str, Any]:
    """Return an info record with one step a request."""
    records = [{"forward_ct": i, "bs": 1, "mode": mode, "reqs": [r]} for i, r in enumerate(requests)]
    return {"mode": mode, "gamma": gamma, "verify_num_draft_tokens": 4, "records": records, **more}


def write(path: Path, content: Any) -> Path:
    """Write JSON."""
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_requests_become_rounds_grouped_by_rid(tmp_path: Path) -> None:
    """rid is the prompt id; windows of verify_len observe verify_len - 1; the refused are counted."""
    dump = info(
        request(rid="b"),
        request(rid="a", verify_len=2, acc_len=2),
        request(rid="b", prefix_len=42, acc_len=4, correct_drafts=3),
        request(rid="a", confidence=None),
        request(rid="a", verify_len=1, acc_len=1, correct_drafts=0),
        request(rid="a", confidence=[float("nan"), 0.5, 0.5]),
        request(rid=None, acc_len=1, correct_drafts=None, cap_trim=None),
    )
    server = {
        "version": "0.5.9",
        "speculative_use_rejection_sampling": True,
        "internal_states": [{"dspark_info_record": dump}],
    }
    imported = read_sglang_server_info([write(tmp_path / "info.json", server)])
    rounds = concat_rounds(imported.batches)
    assert rounds.prompt_id.decode() == ["b", "b", "a", None]
    assert rounds.accepted.tolist() == [1, 3, 1, 0]
    assert rounds.observed.tolist() == [3, 3, 1, 3]
    assert rounds.verified.tolist() == [3, 3, 1, 3]
    assert rounds.anchor.tolist() == [40, 42, 40, 40]
    assert rounds.draft_tokens is not None
    assert rounds.draft_tokens.tolist() == [[11, 12, 13]] * 4
    np.testing.assert_allclose(sigmoid(rounds.confidence_logits), [[0.9, 0.5, 0.25]] * 4, atol=1e-6)
    assert dict(imported.account.refused) == {
        "no confidence (static mode builds no head)": 1,
        "no draft verified": 1,
        "confidence not finite": 1,
    }
    assert imported.account.read == 7
    assert imported.account.balances
    assert imported.provenance.label_law == "sampled"
    assert imported.provenance.versions == {"sglang": "0.5.9"}
    assert imported.provenance.confidence_decimals == 4


def test_cap_accept_gives_back_what_the_cap_took(tmp_path: Path) -> None:
    """In cap-accept mode the whole block was verified: capped drafts were accepted, by either way of counting."""
    for correct in (1, 3):
        dump = info(request(verify_len=2, acc_len=2, cap_trim=2, correct_drafts=correct), mode="cap-accept")
        rounds = concat_rounds(read_sglang_server_info([write(tmp_path / f"{correct}.json", dump)]).batches)
        assert rounds.accepted.tolist() == [3]
        assert rounds.observed.tolist() == [3]


def test_overlapping_dumps_of_one_ring_buffer_count_once(tmp_path: Path) -> None:
    """A request that an earlier dump held is refused; the accounts balance."""
    first = info(request(rid="a"), request(rid="b"))
    second = copy.deepcopy(first)
    second["records"] = (
        second["records"][1:] + info(request(rid="c"), request(rid="d"), request(rid="e"))["records"][2:]
    )
    imported = read_sglang_server_info([write(tmp_path / "1.json", first), write(tmp_path / "2.json", second)])
    assert concat_rounds(imported.batches).prompt_id.decode() == ["a", "b", "e"]
    assert dict(imported.account.refused) == {"already in an earlier dump of the same ring buffer": 1}
    assert imported.account.balances


def test_applied_temperatures_are_taken_out_only_when_given(tmp_path: Path) -> None:
    """A server with a table needs --calibration; with it, raw logits come back; without a table it is refused."""
    raw = np.array([2.0, -1.0, 0.5])
    temperatures = [1.5, 0.7, 2.0]
    scaled = sigmoid(raw / temperatures).round(4).tolist()
    served = {
        "speculative_dspark_confidence_sts_path": "/t.json",
        "dspark_info_record": info(request(confidence=scaled)),
    }
    path = write(tmp_path / "served.json", served)
    with pytest.raises(TraceFormatError, match="give it with --calibration"):
        read_sglang_server_info([path])
    with pytest.raises(TraceFormatError, match="holds 2 temperatures"):
        read_sglang_server_info([path], [1.0, 2.0])
    rounds = concat_rounds(read_sglang_server_info([path], temperatures).batches)
    np.testing.assert_allclose(rounds.confidence_logits[0], raw, atol=2e-3)
    bare = write(tmp_path / "bare.json", served | {"speculative_dspark_confidence_sts_path": None})
    with pytest.raises(TraceFormatError, match="applied no STS table"):
        read_sglang_server_info([bare], temperatures)
    notes = read_sglang_server_info([write(tmp_path / "mute.json", info(request()))]).provenance.notes
    assert any("does not say whether" in note for note in notes)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_the_rounding_interval_holds_the_true_logit(probabilities: list[float]) -> None:
    """Whatever probability was rounded, its logit lies in the interval of the stored float32 logit."""
    stored = rounded_logits(np.round(probabilities, 4), 4).astype(np.float32)
    assert np.isfinite(stored).all()
    low, high = rounding_interval(stored, 4)
    with np.errstate(divide="ignore"):
        true = np.log(probabilities) - np.log1p(-np.asarray(probabilities))
    assert (low - 1e-6 <= true).all()
    assert (true <= high + 1e-6).all()


@pytest.mark.parametrize(
    ("content", "culprit"),
    [
        ([], "expected the JSON object"),
        ({"version": "9.9"}, "no dspark_info_record in this server_info (version '9.9')"),
        (info(request(), gamma="3"), "gamma: expected a whole number"),
        (info(request(), gamma=0), "gamma = 0"),
        (info(request(), simulate_acc_len=2.5), "acceptance was simulated"),
        (info() | {"records": {"a": 1}}, "unknown layout"),
        (info(request(verify_len=None)), "verify_len or acc_len is missing"),
        (info(request(confidence=[0.5, 0.5])), "γ = 3 probabilities"),
        (info(request(confidence=[0.5, 0.5, 1.5])), "not a probability"),
        (info(request(confidence=[0.5, "x", 0.5])), "expected a number"),
        (info(request(acc_len=0)), "contradict each other"),
        (info(request(correct_drafts=3)), "contradict each other"),
        (info(request(verify_len=2, acc_len=3, correct_drafts=2)), "2 drafts accepted in a window that verified 1"),
        (info(request(verify_len=9)), "verify_len: expected a whole number from 0 to 4"),
        (info(request(rid=3)), "rid: expected text"),
        (info(request(confidence=None) | {"confidence": None}), "no usable round"),
    ],
)
def test_a_broken_dump_is_named(tmp_path: Path, content: Any, culprit: str) -> None:
    """File, place and field stand in the message."""
    path = write(tmp_path / "info.json", content)
    with pytest.raises(TraceFormatError) as raised:
        read_sglang_server_info([path])
    assert culprit in str(raised.value)
    assert str(path) in str(raised.value)


def test_huge_and_mixed_dumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file over the limit is refused unread; dumps of different γ are not joined."""
    first = write(tmp_path / "1.json", info(request()))
    second = write(tmp_path / "2.json", info(request(confidence=[0.5]), gamma=1))
    with pytest.raises(TraceFormatError, match="gamma = 1: other dumps have 3"):
        read_sglang_server_info([first, second])
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate((512 << 20) + 1)
    with pytest.raises(TraceFormatError, match="split the file"):
        read_sglang_server_info([huge])
