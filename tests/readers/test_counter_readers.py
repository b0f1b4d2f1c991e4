"""Per-position counters of vLLM and DeepInfer become acceptance.json."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.readers.acceptance import AcceptanceCounts, read_acceptance, write_acceptance
from dspark_calib.trace.readers.deepinfer import read_deepinfer
from dspark_calib.trace.readers.imported import RowAccount
from dspark_calib.trace.readers.rates import counts_from_rates
from dspark_calib.trace.readers.vllm_metrics import read_vllm_metrics

VLLM = (
    "(APIServer pid=1) INFO 09-04 11:01:16 [metrics.py:125] SpecDecoding metrics: Mean acceptance length: {mean}, "
    "Accepted throughput: 6.46 tokens/s, Drafted throughput: 7.77 tokens/s, Accepted: {accepted} tokens, "
    "Drafted: {drafted} tokens, Per-position acceptance rate: {rates}, Avg Draft acceptance rate: 83.1%\n"
)
DEEPINFER = (
    "INFO RANK {rank}, GPU 0, step {step}, [stats] (is_prompt False | cur_SPS 10.000 | avg_nextn_accept_rate 60.00% | "
    "nextn_accept_rate [{rates}] | verified_tokens {verified} | accepted_tokens {accepted} | "
    "avg_verified_len {length} | avg_confidence_error 0.0512 | moe_lb 1.0000)\n"
)
PROMETHEUS = """# HELP vllm:spec_decode_num_drafts Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="a\\"b}"} 100.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="a\\"b}"} 1.78e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="a\\"b}"} 200.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="a\\"b}"} 120.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a\\"b}",position="0"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a\\"b}",position="1"} 40.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="a\\"b}"} 10
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="a\\"b}",position="0"} 8
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="a\\"b}",position="1"} 4 1700000000
vllm:num_requests_running{engine="0"} 3.0
"""


def write(path: Path, text: str) -> Path:
    """Write a log."""
    path.write_text(text, encoding="utf-8")
    return path


def test_vllm_log_lines_from_a_public_log(tmp_path: Path) -> None:
    """44 drafts of 7 with the printed rates accept 44, 44, 44, 44, 35, 27 and 18: 256 in all, as printed."""
    line = VLLM.format(mean=6.82, accepted=256, drafted=308, rates="1.000, 1.000, 1.000, 1.000, 0.795, 0.614, 0.409")
    counts = read_vllm_metrics([write(tmp_path / "log", f"noise\n{line}")])
    assert counts.accepted == (44, 44, 44, 44, 35, 27, 18)
    assert counts.rounds == 44
    assert counts.accepted_length == pytest.approx(6.82, abs=0.005)
    assert counts.conditional[4] == pytest.approx(35 / 44)


def test_vllm_lines_are_kept_or_refused_with_a_reason(tmp_path: Path) -> None:
    """Lines of cut windows, of no drafts and of another layout are counted; kept + refused = read."""
    text = (
        VLLM.format(mean=2.0, accepted=10, drafted=20, rates="0.600, 0.400")
        + VLLM.format(mean=2.0, accepted=12, drafted=17, rates="0.600, 0.400")
        + VLLM.format(mean=1.0, accepted=0, drafted=0, rates="0.000, 0.000")
        + "SpecDecoding metrics: something new\n"
        + VLLM.format(mean=1.0, accepted=1, drafted=2, rates="1.0.0, 0.000")
    )
    counts = read_vllm_metrics([write(tmp_path / "log", text)])
    assert counts.accepted == (6, 4)
    assert counts.account == RowAccount(
        read=5,
        kept=1,
        refused=(
            ("rates and token counts do not add up (windows of different length)", 1),
            ("nothing drafted in the window", 1),
            ("unknown layout of the log line", 2),
        ),
    )
    assert counts.account.balances


def test_vllm_prometheus_counters_are_added_over_engines(tmp_path: Path) -> None:
    """Label values with quotes and braces, time stamps and _created series are read as the text format says."""
    counts = read_vllm_metrics([write(tmp_path / "metrics", PROMETHEUS)])
    assert counts.rounds == 110
    assert counts.accepted == (88, 44)
    assert counts.prefix == (0.8, 0.4)
    assert counts.notes == ()


def test_vllm_adaptive_verification_is_said(tmp_path: Path) -> None:
    """Fewer draft tokens than γ a draft means the deeper rates are lower bounds, and a note says so."""
    counts = read_vllm_metrics([write(tmp_path / "metrics", PROMETHEUS.replace(" 200.0", " 150.0"))])
    assert "lower bounds" in counts.notes[0]


@pytest.mark.parametrize(
    ("old", "new", "culprit"),
    [
        ('position="1"} 40.0', 'position="1"} 90.0', "position 2: 94 accepted of 110 verified"),
        ('position="1"} 40.0', 'position="1"} NaN', "no count"),
        ('position="1"} 40.0', 'position="1"} 1.5', "no count"),
        ('position="1"} 40.0', 'position="1"} -1', "no count"),
        ('position="1"} 40.0', 'position="3"} 40.0', "engines of different block size"),
        ('position="1"} 40.0', 'position="x"} 40.0', "position label"),
        ('position="1"} 40.0', 'position="0"} 40.0', "the same counter twice"),
        ('position="1"} 40.0', 'position="1" 40.0', "not a counter in the Prometheus text format"),
        ("vllm:spec_decode_num_drafts_total", "vllm:other", "an engine lacks num_drafts"),
        ("# HELP", VLLM.format(mean=2.0, accepted=10, drafted=20, rates="0.600, 0.400") + "# HELP", "give one kind"),
    ],
)
def test_broken_prometheus_text_is_named(tmp_path: Path, old: str, new: str, culprit: str) -> None:
    """Impossible, missing or doubled counters are errors."""
    with pytest.raises(TraceFormatError, match=culprit):
        read_vllm_metrics([write(tmp_path / "metrics", PROMETHEUS.replace(old, new))])


def test_vllm_snapshots_of_one_engine_and_foreign_files(tmp_path: Path) -> None:
    """Cumulative counters given twice, and files without metrics, are refused."""
    first = write(tmp_path / "1", PROMETHEUS)
    second = write(tmp_path / "2", PROMETHEUS.replace(" 40.0", " 41.0"))
    with pytest.raises(TraceFormatError, match="same engine"):
        read_vllm_metrics([first, second])
    with pytest.raises(TraceFormatError, match="neither a"):
        read_vllm_metrics([write(tmp_path / "3", "hello\n")])


def test_vllm_logs_of_different_block_size(tmp_path: Path) -> None:
    """Windows with another number of positions are not added up."""
    text = VLLM.format(mean=2.0, accepted=10, drafted=20, rates="0.600, 0.400")
    text += VLLM.format(mean=1.5, accepted=5, drafted=10, rates="0.500")
    with pytest.raises(TraceFormatError, match="line 2: 1 positions where earlier lines have 2"):
        read_vllm_metrics([write(tmp_path / "log", text)])


def test_deepinfer_lines_of_whole_blocks(tmp_path: Path) -> None:
    """Counts follow where every block was verified whole; varlen lines and repeated ranks are refused."""
    text = (
        DEEPINFER.format(rank=0, step=50, rates="81.25%, 62.50%", verified=64, accepted=46, length="2.00")
        + DEEPINFER.format(rank=1, step=50, rates="81.25%, 62.50%", verified=64, accepted=46, length="2.00")
        + DEEPINFER.format(rank=1, step=100, rates="50.00%, 25.00%", verified=8, accepted=3, length="2.00")
        + DEEPINFER.format(rank=0, step=150, rates="50.00%, 40.00%", verified=8, accepted=3, length="1.60")
        + DEEPINFER.format(rank=0, step=200, rates="0.00%, 0.00%", verified=0, accepted=0, length="0.00")
        + "RANK 0, GPU 0, step 250, [stats] (a later version | nextn_rates 1)\n"
    )
    counts = read_deepinfer([write(tmp_path / "log", text)])
    assert counts.rounds == 36
    assert counts.accepted == (28, 21)
    assert counts.account.read == 6
    assert counts.account.kept == 2
    assert counts.account.balances
    assert {reason.split(" (")[0] for reason, _ in counts.account.refused} == {
        "repeated by another rank of the same step",
        "blocks verified in part",
        "nothing drafted in the window",
        "unknown layout of the [stats] line",
    }


def test_deepinfer_without_a_usable_line(tmp_path: Path) -> None:
    """A log without statistics, or of nothing but varlen windows, is an error that says what to do."""
    with pytest.raises(TraceFormatError, match="DEEPINFER_LOGGING_INTERVAL_STEP"):
        read_deepinfer([write(tmp_path / "log", "hello\n")])
    line = DEEPINFER.format(rank=0, step=1, rates="50.00%, 40.00%", verified=8, accepted=3, length="1.60")
    with pytest.raises(TraceFormatError, match="DEEPINFER_ENABLE_MTP_VARLEN off"):
        read_deepinfer([write(tmp_path / "varlen", line)])


@given(st.integers(1, 900), st.lists(st.integers(0, 900), min_size=1, max_size=8))
def test_counts_come_back_from_rounded_rates(blocks: int, accepted: list[int]) -> None:
    """Below 1,000 blocks, 3 decimals and the token totals give the exact counts."""
    counts = sorted((min(a, blocks) for a in accepted), reverse=True)
    rates = [round(c / blocks, 3) for c in counts]
    assert counts_from_rates(rates, blocks * len(counts), sum(counts), 3) == tuple(counts)


def test_acceptance_file_round_trip(tmp_path: Path) -> None:
    """acceptance.json comes back as it was written, with 1-based positions."""
    counts = read_vllm_metrics([write(tmp_path / "metrics", PROMETHEUS)])
    path = tmp_path / "acceptance.json"
    write_acceptance(path, counts)
    assert read_acceptance(path) == counts
    assert '"position": 1' in path.read_text()


def test_conditional_needs_whole_windows() -> None:
    """Where a scheduler cut blocks before k, the conditional rate is not known."""
    counts = AcceptanceCounts(
        source="x", rounds=10, verified=(10, 6), accepted=(8, 3), account=RowAccount(read=1, kept=1, refused=())
    )
    assert counts.prefix == (0.8, 0.5)
    assert counts.conditional == (0.8, None)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"schema": "dspark-calib/acceptance/2"}',
        '{"schema": "dspark-calib/acceptance/1", "positions": []}',
        '{"schema": "dspark-calib/acceptance/1", "rounds": 1, "read": 0, "kept": 0, "positions": [{"verified": 1}]}',
        '{"schema": "dspark-calib/acceptance/1", "rounds": 0, "positions": [{"verified": 1, "accepted": 2}]}',
    ],
)
def test_broken_acceptance_files(tmp_path: Path, text: str) -> None:
    """Another schema, missing or impossible counts are errors."""
    with pytest.raises(TraceFormatError):
        read_acceptance(write(tmp_path / "acceptance.json", text))
