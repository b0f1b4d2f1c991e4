"""Traces on disk: what goes in comes out, and damage is named."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_calib.errors import InsufficientData, OutputExists, TraceFormatError
from dspark_calib.trace import Labels, Provenance, Rounds, Trace, TraceWriter, concat_rounds, open_trace, write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def some_rounds(prompts: int = 5, *, seed: int = 0, first_prompt: int = 0) -> Rounds:
    rng = np.random.default_rng(seed)
    return synthetic_rounds(
        rng, prompts=prompts, rounds_per_prompt=7, temperatures=[1.5, 1.2, 0.8], first_prompt=first_prompt
    )


def assert_same(a: Rounds, b: Rounds) -> None:
    for name in Rounds.__dataclass_fields__:
        left, right = getattr(a, name), getattr(b, name)
        if isinstance(left, Labels):
            assert left.decode() == right.decode(), name
        elif left is None:
            assert right is None, name
        else:
            np.testing.assert_array_equal(left, right, err_msg=name)
            assert left.dtype == right.dtype, name


def test_written_rounds_are_read_back(tmp_path: Path) -> None:
    """Every column, optional ones included, survives the disk; so does the provenance."""
    rounds = some_rounds()
    tokens = np.arange(35 * 3, dtype=np.int32).reshape(35, 3)
    full = Rounds(
        **{
            name: getattr(rounds, name)
            for name in Rounds.__dataclass_fields__
            if name not in ("draft_tokens", "acceptance_probs")
        },
        draft_tokens=tokens,
        acceptance_probs=np.full((35, 3), np.nan, np.float32),
    )
    trace = write_trace(tmp_path / "t", synthetic_provenance(3), [full])
    assert_same(trace.read(), full)
    assert (trace.num_rounds, trace.provenance.prompts) == (35, 5)
    assert open_trace(tmp_path / "t").provenance == trace.provenance


def test_unknown_anchor_and_prompt_are_null_in_the_file(tmp_path: Path) -> None:
    """-1 anchors and missing prompt ids are nulls in Parquet, not numbers."""
    rounds = some_rounds()
    unknown = concat_rounds([rounds])
    unknown.anchor[:] = -1
    object.__setattr__(unknown, "prompt_id", Labels.constant(None, len(unknown)))
    trace = write_trace(tmp_path / "t", synthetic_provenance(3), [unknown])
    table = pq.read_table(tmp_path / "t" / "part-00000.parquet")
    assert table["anchor"].null_count == table["prompt_id"].null_count == 35
    assert_same(trace.read(), unknown)
    assert trace.provenance.prompts == 0


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 35), max_size=4), st.integers(1, 40))
def test_batches_concatenate_to_the_whole(tmp_path_factory: pytest.TempPathFactory, cuts: list[int], rows: int) -> None:
    """Any partition into parts and any batch size give the same rows in the same order."""
    rounds = some_rounds()
    edges = [0, *sorted(cuts), 35]
    parts = [rounds.take(slice(a, b)) for a, b in pairwise(edges)]
    trace = write_trace(tmp_path_factory.mktemp("t") / "t", synthetic_provenance(3), parts)
    assert_same(concat_rounds(list(trace.batches(batch_rows=rows))), rounds)


def test_a_failing_batch_leaves_nothing_behind(tmp_path: Path) -> None:
    """A batch that breaks a rule names file, row and field; no folder appears."""
    broken = some_rounds()
    broken.confidence_logits[4, 1] = np.nan
    with pytest.raises(TraceFormatError, match=r"row 4, confidence_logits .* is not finite"):
        write_trace(tmp_path / "t", synthetic_provenance(3), [some_rounds(), broken])
    assert list(tmp_path.iterdir()) == []


def test_an_existing_trace_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    """A second write is refused, then replaces every part with `overwrite`."""
    write_trace(tmp_path / "t", synthetic_provenance(3), [some_rounds(), some_rounds(seed=1)])
    with pytest.raises(OutputExists, match="--overwrite"):
        write_trace(tmp_path / "t", synthetic_provenance(3), [some_rounds()])
    assert write_trace(tmp_path / "t", synthetic_provenance(3), [some_rounds()], overwrite=True).num_rounds == 35


def test_the_writer_keeps_finished_parts(tmp_path: Path) -> None:
    """Parts written before an interruption stay; the folder is no trace until it is completed."""
    writer = TraceWriter(tmp_path / "t")
    writer.write_part(1, some_rounds(seed=1))
    with pytest.raises(TraceFormatError, match="--resume"):
        open_trace(tmp_path / "t")
    again = TraceWriter(tmp_path / "t")
    assert again.finished_parts() == {1}
    again.write_part(0, some_rounds(seed=0))
    trace = again.complete(synthetic_provenance(3))
    assert_same(trace.read(), concat_rounds([some_rounds(seed=0), some_rounds(seed=1)]))


def test_a_data_frame_has_the_same_rows(tmp_path: Path) -> None:
    """`to_pandas` gives a column for each trace column and a row for each round."""
    rounds = some_rounds()
    frame = Trace.of(rounds, synthetic_provenance(3)).to_pandas()
    assert frame["accepted"].tolist() == rounds.accepted.tolist()
    assert frame["prompt_id"].tolist() == rounds.prompt_id.decode()
    assert np.stack(frame["confidence_logits"].tolist()).shape == (35, 3)


def test_equal_rows_have_equal_hashes(tmp_path: Path) -> None:
    """The content hash follows the rows, not the folder."""
    a = write_trace(tmp_path / "a", synthetic_provenance(3), [some_rounds()])
    b = write_trace(tmp_path / "b", synthetic_provenance(3), [some_rounds()])
    c = write_trace(tmp_path / "c", synthetic_provenance(3), [some_rounds(seed=1)])
    assert a.content_hash == b.content_hash != c.content_hash
    assert (
        Trace.of(some_rounds(), synthetic_provenance(3)).content_hash
        != Trace.of(some_rounds(seed=1), synthetic_provenance(3)).content_hash
    )


def damage(folder: Path, what: str) -> None:
    part, meta = folder / "part-00000.parquet", folder / "trace.json"
    body = json.loads(meta.read_text())
    match what:
        case "truncated part":
            part.write_bytes(part.read_bytes()[:300])
        case "foreign part":
            table = pq.read_table(part)
            pq.write_table(table, folder / "part-00001.parquet")
        case "missing column":
            pq.write_table(pq.read_table(part).drop(["accepted"]), part)
        case "other γ":
            meta.write_text(json.dumps(body | {"gamma": 4}))
        case "other schema":
            meta.write_text(json.dumps(body | {"schema": "dspark-calib/trace/9"}))
        case "unknown field":
            meta.write_text(json.dumps(body | {"surprise": 1}))
        case "no JSON":
            meta.write_text("{")
        case "a list":
            meta.write_text("[]")
        case "a law nobody knows":
            meta.write_text(json.dumps(body | {"label_law": "magic"}))
        case "text where numbers belong":
            table = pq.read_table(part)
            index = table.schema.get_field_index("accepted")
            column = pa.array(["x"] * len(table))
            pq.write_table(table.set_column(index, "accepted", column), part)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("truncated part", "part-00000.parquet.*not a readable Parquet"),
        ("foreign part", "counts 35 rounds, the part files hold 70"),
        ("missing column", "accepted: the column is missing"),
        ("other γ", "rows hold 3 values, trace.json says γ = 4"),
        ("other schema", "this version reads"),
        ("unknown field", "surprise: unknown field"),
        ("no JSON", "not readable as JSON"),
        ("a list", "expected a JSON object"),
        ("a law nobody knows", "label_law = 'magic'"),
        ("text where numbers belong", "accepted: expected whole numbers"),
    ],
)
def test_damage_is_named(tmp_path: Path, what: str, says: str) -> None:
    """Each kind of damage gives one error that names the file and what is wrong with it."""
    write_trace(tmp_path / "t", synthetic_provenance(3), [some_rounds()])
    damage(tmp_path / "t", what)
    with pytest.raises(TraceFormatError, match=says):
        open_trace(tmp_path / "t").read()


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("observed", 4, r"must lie in 0\.\.3"),
        ("accepted", -1, r"must lie in 0\.\.observed"),
        ("accepted", 4, r"must lie in 0\.\.observed"),
        ("verified", 9, r"must lie in 0\.\.3"),
    ],
)
def test_impossible_labels_are_refused(field: str, value: int, says: str) -> None:
    """accepted ≤ observed ≤ γ and verified ≤ γ hold in every row."""
    rounds = some_rounds()
    getattr(rounds, field)[2] = value
    with pytest.raises(TraceFormatError, match=f"row 2, {field}.*{says}"):
        Trace.of(rounds, synthetic_provenance(3))


def test_a_missing_folder_says_how_to_make_one(tmp_path: Path) -> None:
    """No such trace: the message names the two commands that make one."""
    with pytest.raises(TraceFormatError, match="dspark-calib collect"):
        open_trace(tmp_path / "nowhere")


def test_an_empty_trace_is_no_data(tmp_path: Path) -> None:
    """A trace of zero rounds opens, but reading it says that there is nothing."""
    trace = write_trace(tmp_path / "t", Provenance(gamma=3), [])
    assert trace.num_rounds == 0
    with pytest.raises(InsufficientData, match="no rounds"):
        trace.read()
