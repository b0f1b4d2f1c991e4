"""Slices against literal sums over the rounds of a cell."""

from dataclasses import replace

import numpy as np
import pytest

from dspark_calib.summary.slices import SliceSums, slice_columns
from dspark_calib.summary.survey import survey_batches
from dspark_calib.survival import prefix_survival
from dspark_calib.trace import Labels, Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def drifting_trace() -> Trace:
    """Rounds at depths 0 … 199 of responses of 200 tokens, some with unknown anchors."""
    rng = np.random.default_rng(5)
    rounds = synthetic_rounds(rng, prompts=30, rounds_per_prompt=200, temperatures=[1.6, 1.3, 1.0])
    anchor = np.where(rng.random(len(rounds)) < 0.1, -1, rounds.anchor).astype(np.int32)
    return Trace.of(replace(rounds, anchor=anchor), synthetic_provenance(3))


def test_depth_slices_equal_literal_sums() -> None:
    """Mean survival and acceptance of a depth range equal those of the rounds picked by hand."""
    trace = drifting_trace()
    sums = SliceSums("depth")
    for batch in survey_batches(trace, lambda keys: np.full((len(keys), 3), 2.0)):
        sums.add(batch, slice_columns(batch, "cumulative"))
    slices = sums.slices("cumulative")
    assert slices is not None
    rounds = trace.read()
    depth = rounds.anchor - rounds.prompt_length
    assert [(cell.low, cell.high) for cell in slices.cells] == [(0, 16), (16, 32), (32, 64), (64, 128), (128, 256)]
    for cell in slices.cells:
        rows = (rounds.anchor >= 0) & (depth >= cell.low) & (depth < (cell.high or 1e9))
        survival = prefix_survival(rounds.confidence_logits[rows])
        tempered = prefix_survival(rounds.confidence_logits[rows], [2.0] * 3)
        assert cell.n == rows.sum()
        assert cell.prompts == 30
        assert cell.predicted == pytest.approx(survival.mean(), rel=1e-12)
        assert cell.observed == pytest.approx(rounds.accepted[rows].mean() / 3, rel=1e-12)
        assert cell.raw_bias.value == pytest.approx(survival.mean() - rounds.accepted[rows].mean() / 3, abs=1e-12)
        assert cell.calibrated_bias.value == pytest.approx(
            tempered.mean() - rounds.accepted[rows].mean() / 3, abs=1e-12
        )


def test_conditional_view_looks_at_judged_positions_only() -> None:
    """On a cut trace the bias is of c_k where draft k was judged; cutting at random leaves it at zero."""
    rng = np.random.default_rng(8)
    rounds = synthetic_rounds(rng, prompts=200, rounds_per_prompt=100, temperatures=[1.0, 1.0, 1.0])
    window = rng.integers(1, 4, len(rounds)).astype(np.int16)
    cut = replace(rounds, accepted=np.minimum(rounds.accepted, window), observed=window, verified=window)
    sums = SliceSums("confidence_1")
    for batch in survey_batches(Trace.of(cut, synthetic_provenance(3)), None):
        sums.add(batch, slice_columns(batch, "conditional"))
    slices = sums.slices("conditional")
    assert slices is not None
    biases = [cell.raw_bias.value for cell in slices.cells if cell.n > 1000]
    assert biases
    assert max(abs(bias or 0.0) for bias in biases) < 0.02


def test_unknown_quantity_has_no_slices() -> None:
    """A trace without anchors has no slices by depth."""
    rounds = synthetic_rounds(np.random.default_rng(0), prompts=3, rounds_per_prompt=5, temperatures=[1.0])
    blind = replace(rounds, anchor=np.full(15, -1, np.int32))
    sums = SliceSums("depth")
    for batch in survey_batches(Trace.of(blind, synthetic_provenance(1)), None):
        sums.add(batch, slice_columns(batch, "cumulative"))
    assert sums.slices("cumulative") is None


def test_any_split_into_batches_gives_the_same_slices() -> None:
    """Slices do not depend on how the rows come in batches."""
    trace = drifting_trace()
    results = []
    for size in (100, 1713, 10_000):
        sums = SliceSums("prompt_length")
        rows = trace.read()
        parts = [rows.take(slice(i, i + size)) for i in range(0, len(rows), size)]
        for batch in survey_batches(replace(trace, sources=tuple(parts)), None):
            sums.add(batch, slice_columns(batch, "cumulative"))
        slices = sums.slices("cumulative")
        assert slices is not None
        results.append([x for c in slices.cells for x in (c.n, c.prompts, c.raw_bias.value, c.raw_bias.se)])
    assert results[0] == pytest.approx(results[1], rel=1e-9)
    assert results[0] == pytest.approx(results[2], rel=1e-9)


def test_calibrated_bias_is_undefined_without_a_calibration() -> None:
    """Raw slices say nothing about a calibration that is not there."""
    sums = SliceSums("confidence_1")
    for batch in survey_batches(drifting_trace(), None):
        sums.add(batch, slice_columns(batch, "cumulative"))
    slices = sums.slices("cumulative")
    assert slices is not None
    assert all(cell.calibrated_bias.value is None for cell in slices.cells)


def test_null_domains_count_under_all_alone() -> None:
    """Rounds without a domain belong to no group and still to the whole."""
    from dspark_calib.summary.sweep import SweepCounts

    rounds = synthetic_rounds(np.random.default_rng(0), prompts=2, rounds_per_prompt=50, temperatures=[1.0, 1.0])
    half = replace(rounds, domain=Labels.encode([None] * 50 + ["math"] * 50))
    counts = SweepCounts(2, ["math"], "domain")
    for batch in survey_batches(Trace.of(half, synthetic_provenance(2)), None):
        counts.add(batch)
    assert counts.counts[0, 0, 0].sum() == 50
    assert counts.counts[0, :, 0].sum() == 100
