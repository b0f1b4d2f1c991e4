"""Clusters, folds, mixing and loop extraction."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_calib.errors import IncompatibleTraces, TraceFormatError
from dspark_calib.trace import (
    Checkpoint,
    Labels,
    PromptClusters,
    Rounds,
    Trace,
    assign_folds,
    combine_traces,
    concat_labels,
    concat_rounds,
    loop_trace,
    visited_rows,
)
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def rounds_of(prompts: int, per_prompt: int, *, first: int = 0, dataset: str = "d", seed: int = 0) -> Rounds:
    return synthetic_rounds(
        np.random.default_rng(seed),
        prompts=prompts,
        rounds_per_prompt=per_prompt,
        temperatures=[1.0] * 3,
        first_prompt=first,
        dataset=dataset,
    )


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", None]), max_size=5), min_size=1, max_size=4))
def test_labels_join_as_lists_do(columns: list[list[str | None]]) -> None:
    """Encoding, joining and decoding is the concatenation of the lists."""
    joined = concat_labels([Labels.encode(c) for c in columns])
    assert joined.decode() == [value for column in columns for value in column]


def test_clusters_are_prompts_within_datasets() -> None:
    """The same prompt id in two data sets is two clusters; a prompt seen in two batches is one."""
    clusters = PromptClusters()
    first = clusters.assign(rounds_of(2, 3))
    other = clusters.assign(rounds_of(2, 3, dataset="e"))
    again = clusters.assign(rounds_of(2, 3))
    assert first.tolist() == again.tolist() == [0, 0, 0, 1, 1, 1]
    assert other.tolist() == [2, 2, 2, 3, 3, 3]
    assert clusters.keys[0] == ("d", "p000000")
    assert clusters.prompt_count == 4


@settings(max_examples=20)
@given(st.lists(st.integers(0, 130), max_size=4))
def test_blocks_stand_in_for_missing_prompts(lengths: list[int]) -> None:
    """Without ids, rounds n·100 … n·100+99 of a data set are one cluster however the batches are cut."""
    clusters = PromptClusters()
    numbers: list[int] = []
    for length in lengths:
        rounds = replace(rounds_of(max(length, 1), 1), prompt_id=Labels.constant(None, max(length, 1)))
        numbers += clusters.assign(rounds.take(slice(0, length))).tolist()
    assert numbers == [i // 100 for i in range(sum(lengths))]


def test_very_many_prompts_are_hashed() -> None:
    """Above 50,000 expected prompts the clusters are hashed, and the object says so."""
    clusters = PromptClusters(expected_prompts=60_000)
    numbers = clusters.assign(rounds_of(300, 2))
    assert clusters.hashed
    assert np.array_equal(numbers[::2], numbers[1::2])


def test_folds_depend_on_seed_and_prompt_only() -> None:
    """A prompt keeps its fold whatever else is in the trace; folds are about equally large."""
    keys = [("d", f"p{i}") for i in range(4000)]
    folds = assign_folds(keys, 4, seed=1)
    assert folds[100:].tolist() == assign_folds(keys[100:], 4, seed=1).tolist()
    assert folds.tolist() != assign_folds(keys, 4, seed=2).tolist()
    # Binomial(4000, 1/4): five standard deviations are 137
    assert np.all(np.abs(np.bincount(folds) - 1000) < 137)


def every_anchor(accepted_by_prompt: list[list[int]], gamma: int = 4) -> Rounds:
    batches = []
    for prompt, accepted in enumerate(accepted_by_prompt):
        base = synthetic_rounds(
            np.random.default_rng(prompt),
            prompts=1,
            rounds_per_prompt=len(accepted),
            temperatures=[1.0] * gamma,
            first_prompt=prompt,
        )
        batches.append(replace(base, accepted=np.array(accepted, np.int16)))
    return concat_rounds(batches)


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=4))
def test_loop_rounds_are_those_a_plain_walk_visits(accepted: list[list[int]]) -> None:
    """Jumping t → t + accepted + 1 in plain Python visits the same rows."""
    expected, start = [], 0
    for lengths in accepted:
        t = 0
        while t < len(lengths):
            expected.append(start + t)
            t += lengths[t] + 1
        start += len(lengths)
    assert visited_rows(every_anchor(accepted)).tolist() == expected


def test_loop_extraction_needs_every_anchor() -> None:
    """A `loop` trace, or an `all` trace with a hole, is refused with the reason."""
    rounds = every_anchor([[1, 0, 2, 0]])
    everything = replace(synthetic_provenance(4), anchor_policy="all")
    assert loop_trace(Trace.of(rounds, everything)).read().anchor.tolist() == [32, 34]
    with pytest.raises(TraceFormatError, match="--anchors all"):
        loop_trace(Trace.of(rounds, synthetic_provenance(4)))
    with pytest.raises(TraceFormatError, match="does not hold every anchor"):
        loop_trace(Trace.of(rounds.take(np.array([0, 2, 3])), everything))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"temperature": 0.7}, "differ in temperature: 1.0 against 0.7"),
        ({"label_law": "greedy"}, "differ in label_law"),
        ({"drafter": Checkpoint(name="other", content_hash="ff")}, "differ in drafter"),
    ],
)
def test_unlike_traces_are_not_mixed(change: dict[str, object], says: str) -> None:
    """Another checkpoint, law or temperature is refused unless the mixture is wanted."""
    a = Trace.of(rounds_of(2, 2), synthetic_provenance(3))
    b = Trace.of(rounds_of(2, 2, first=2), replace(synthetic_provenance(3), **change))
    with pytest.raises(IncompatibleTraces, match=says):
        combine_traces([a, b])
    assert combine_traces([a, b], allow_mixed=True).num_rounds == 8


def test_another_block_size_is_never_mixed() -> None:
    """γ differs: refused even when mixtures are allowed."""
    a = Trace.of(rounds_of(2, 2), synthetic_provenance(3))
    b = Trace.of(every_anchor([[1]]), synthetic_provenance(4))
    with pytest.raises(IncompatibleTraces, match="differ in gamma: 3 against 4"):
        combine_traces([a, b], allow_mixed=True)


def test_the_same_trace_twice_is_refused() -> None:
    """Counting rounds twice would shrink every interval."""
    a = Trace.of(rounds_of(2, 2), synthetic_provenance(3), "a")
    b = Trace.of(rounds_of(2, 2), synthetic_provenance(3), "b")
    with pytest.raises(IncompatibleTraces, match="a and b hold the same rounds"):
        combine_traces([a, b])
