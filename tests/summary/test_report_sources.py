"""What a report is about: joined traces, drafters side by side, counters, refused checkpoints."""

from dataclasses import replace

import numpy as np
import pytest

from dspark_calib.calibration.file import Calibration
from dspark_calib.errors import CalibrationFileError, IncompatibleTraces
from dspark_calib.summary.build import NamedCounts, counters_report
from dspark_calib.summary.sources import check_calibration, counted_drafter, drafter_names, source_of, split_traces
from dspark_calib.trace import Checkpoint, Trace
from dspark_calib.trace.readers.acceptance import AcceptanceCounts
from dspark_calib.trace.readers.imported import RowAccount
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def trace_of(drafter: str, target: str = "t", name: str = "trace", seed: int = 0) -> Trace:
    """A small trace of a named pair."""
    rounds = synthetic_rounds(np.random.default_rng(seed), prompts=3, rounds_per_prompt=5, temperatures=[1.0, 1.0])
    provenance = replace(
        synthetic_provenance(2),
        target=Checkpoint(name=target, content_hash=f"sha256:{target}"),
        drafter=Checkpoint(name=drafter, content_hash=f"sha256:{drafter}"),
    )
    return Trace.of(rounds, provenance, name)


def test_traces_of_one_drafter_are_joined_others_laid_beside() -> None:
    """The drafter of the first trace is judged, with all its rounds."""
    first, beside = split_traces([trace_of("a"), trace_of("b", seed=1), trace_of("a", name="more", seed=2)])
    assert first.num_rounds == 30
    assert [other.provenance.drafter.name for other in beside] == ["b"]


def test_different_targets_are_refused() -> None:
    """Drafters are compared for one target only, and the message names both."""
    with pytest.raises(IncompatibleTraces, match="sha256:t and sha256:u"):
        split_traces([trace_of("a"), trace_of("b", target="u", seed=1)])


def test_allow_mixed_joins_everything() -> None:
    """With --allow-mixed drafters become one trace."""
    first, beside = split_traces([trace_of("a"), trace_of("b", seed=1)], allow_mixed=True)
    assert (first.num_rounds, beside) == (30, ())


def test_equal_names_are_told_apart() -> None:
    """Two drafters of one name are told apart by their folders."""
    assert drafter_names([trace_of("a", name="x"), trace_of("a", name="y")]) == ("a (x)", "a (y)")
    assert drafter_names([trace_of("a"), trace_of("b")]) == ("a", "b")


@pytest.mark.parametrize("role", ["drafter", "target"])
def test_calibration_of_another_checkpoint_is_refused_with_both_hashes(role: str) -> None:
    """Temperatures of another drafter or target are not judged here."""
    fitted = Calibration(temperatures=(1.0, 1.0), **{role: Checkpoint(name="other", content_hash="sha256:other")})
    with pytest.raises(CalibrationFileError) as refused:
        check_calibration(trace_of("a"), fitted, "calibration.json")
    assert "sha256:other" in str(refused.value)
    assert ("sha256:a" if role == "drafter" else "sha256:t") in str(refused.value)


def test_calibration_of_another_block_length_is_refused() -> None:
    """γ temperatures for γ drafts."""
    with pytest.raises(CalibrationFileError, match="3 temperatures"):
        check_calibration(trace_of("a"), Calibration(temperatures=(1.0, 1.0, 1.0)), "calibration.json")


def test_calibration_of_another_tool_is_judged() -> None:
    """A bare SGLang file knows no checkpoint, and is judged as it is."""
    check_calibration(trace_of("a"), Calibration(temperatures=(1.0, 1.2)), "sglang.json")


def counts() -> NamedCounts:
    """100 blocks: 60, 30 and 10 accepted up to positions 1, 2, 3."""
    account = RowAccount(read=1, kept=1, refused=())
    made = AcceptanceCounts(
        source="import vllm-metrics", rounds=100, verified=(100, 100, 100), accepted=(60, 30, 10), account=account
    )
    return NamedCounts(name="acceptance.json", counts=made)


def test_counters_give_rates_lengths_and_no_intervals() -> None:
    """Worked by hand: .6, .5, 1/3; τ = 2; 40, 30, 20 and 10 blocks of 0, 1, 2 and 3."""
    acceptance = counted_drafter(counts()).acceptance
    assert [rate.value for rate in acceptance.conditional] == pytest.approx([0.6, 0.5, 1 / 3])
    assert acceptance.accepted_length.value == pytest.approx(2.0)
    assert acceptance.lengths == (40, 30, 20, 10)
    assert acceptance.judged == (100, 60, 30)
    assert all(rate.low is None for rate in acceptance.conditional)


def test_counters_alone_make_a_report() -> None:
    """Counters need no trace; the report says nothing about confidence."""
    report = counters_report([counts()])
    assert report.groups == ()
    assert report.verdict.outcome == "no_confidence"
    assert report.drafters[0].source == "counters"


@pytest.mark.parametrize(
    ("name", "shown"),
    [("Qwen/Qwen3-4B", "Qwen/Qwen3-4B"), ("/home/me/ckpt/step-100", "step-100"), ("./drafter", "drafter")],
)
def test_paths_of_this_machine_stay_out_of_the_report(name: str, shown: str) -> None:
    """A hub name is kept, of a folder only its last part."""
    source = source_of(trace_of(name), "prompts", (), ())
    assert source.drafter.name == shown
    assert drafter_names([trace_of(name)]) == (shown,)
