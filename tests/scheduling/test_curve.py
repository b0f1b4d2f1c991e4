"""Speed curves: what holds at, between and beyond the points, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from dspark_calib.errors import CurveError, OutputExists
from dspark_calib.scheduling.curve import ProfileConditions, make_curve
from dspark_calib.scheduling.curve_files import CURVE_WRITERS, read_curve, write_curve


def test_linear_lookup_interpolates_step_time() -> None:
    """Between points the step time, not the speed, is interpolated; below the first point its time holds."""
    curve = make_curve([2, 4], [100.0, 50.0], lookup="linear")  # 10 ms and 20 ms
    np.testing.assert_allclose(curve.seconds_by_tokens(4), [0, 0.010, 0.010, 0.015, 0.020], rtol=1e-12)


def test_ceiling_lookup_pads_to_the_next_graph() -> None:
    """A batch of 3 on graphs of 2 and 4 runs at the speed of 4 (DeepInfer's rule)."""
    curve = make_curve([2, 4], [100.0, 50.0], lookup="ceiling")
    np.testing.assert_allclose(curve.speeds_by_tokens(4), [0, 100, 100, 50, 50], rtol=1e-12)


def test_floor_lookup_keeps_the_last_probe() -> None:
    """SGLang's table answers with the probe at or below B and holds the last one up to its maximum."""
    curve = make_curve([2, 4], [100.0, 50.0], lookup="floor", max_tokens=6)
    np.testing.assert_allclose(curve.speeds_by_tokens(7), [0, 100, 100, 100, 50, 50, 50, 0], rtol=1e-12)


def test_beyond_the_curve_a_batch_is_cut_into_steps() -> None:
    """11 tokens on a curve that ends at 4 take two full steps and one of 3; a scheduler sees speed 0 there."""
    curve = make_curve([1, 4], [1000.0, 100.0], lookup="ceiling")
    assert curve.seconds_by_tokens(11)[11] == pytest.approx(2 * 0.01 + 0.01)
    assert curve.speeds_by_tokens(11)[5:].tolist() == [0.0] * 7


def test_jagged_speeds_are_legal() -> None:
    """Speeds may rise with B, as they do where kernels change."""
    assert make_curve([1, 2, 3], [10.0, 20.0, 5.0]).steps_per_second.tolist() == [10, 20, 5]


@pytest.mark.parametrize(
    ("tokens", "speeds", "message"),
    [
        ([1, 2, 2], [3, 2, 1], "point 3, tokens = 2"),
        ([2, 1], [3, 2], "point 2, tokens = 1"),
        ([1, 2], [3, 0], "point 2, speed = 0"),
        ([1, 2], [-3, 1], "point 1, speed = -3"),
        ([1, 2], [3, float("nan")], "point 2, speed = nan"),
        ([1, 2], [float("inf"), 1], "point 1, speed = inf"),
        ([0, 2], [3, 1], "point 1, tokens = 0"),
        ([1.5], [3], "point 1, tokens = 1.5"),
        ([1, 2], [3], "2 token counts and 1 speeds"),
        ([], [], "0 token counts and 0 speeds"),
        (["a"], [3], "expected a list of numbers"),
        ([[1, 2]], [3], "expected a flat list"),
    ],
)
def test_wrong_points_are_refused_by_place(tokens: list[object], speeds: list[object], message: str) -> None:
    """A wrong point is refused with the file, the point and the value."""
    with pytest.raises(CurveError, match=message) as caught:
        make_curve(tokens, speeds, where="sps.json")
    assert str(caught.value).startswith("sps.json")


@pytest.mark.parametrize("max_tokens", [3, 4.5, "8"])
def test_wrong_maximum_is_refused(max_tokens: object) -> None:
    """The largest batch cannot lie below the last point, nor be anything but a whole number."""
    with pytest.raises(CurveError, match="max_tokens"):
        make_curve([1, 4], [2.0, 1.0], max_tokens=max_tokens)


def test_concurrency_beyond_the_curve_is_refused() -> None:
    """More requests than the largest batch are refused, as DeepInfer's scheduler aborts there."""
    curve = make_curve([1, 8], [2.0, 1.0])
    curve.check_concurrency(8)
    with pytest.raises(CurveError, match="ends at 8 tokens"):
        curve.check_concurrency(9)


CURVE = make_curve(
    [1, 8, 24],
    [181.25, 190.5, 77.0],
    lookup="linear",
    max_tokens=32,
    samples_ms=((5.5, 5.6), (5.25, 5.2), (13.0, 12.9)),
    conditions=ProfileConditions(
        target="tiny", device="cpu", dtype="float32", context=64, query_length=8, threads=2, cuda_graphs=False,
        versions={"torch": "2.13.0"},
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("layout", "lookup", "max_tokens"),
    [("dspark-calib", "linear", 32), ("sglang", "floor", 32), ("deepinfer", "ceiling", 24), ("csv", "linear", 24)],
)
def test_every_layout_reads_back(tmp_path: Path, layout: str, lookup: str, max_tokens: object) -> None:
    """Points survive each format; the lookup rule is the one its engine uses."""
    curve = read_curve(write_curve(CURVE, tmp_path / "curve", layout=layout))
    assert curve.tokens.tolist() == CURVE.tokens.tolist()
    np.testing.assert_allclose(curve.steps_per_second, CURVE.steps_per_second, rtol=1e-14)
    assert (curve.lookup, curve.max_tokens) == (lookup, max_tokens)


def test_own_layout_keeps_samples_and_conditions(tmp_path: Path) -> None:
    """The toolkit's own file loses nothing."""
    curve = read_curve(write_curve(CURVE, tmp_path / "sps.json"))
    assert curve.samples_ms == CURVE.samples_ms
    assert curve.conditions == CURVE.conditions


def test_engine_layouts_are_what_the_engines_parse(tmp_path: Path) -> None:
    """SGLang's keys and DeepInfer's pairs stand literally in the files."""
    sglang = json.loads(write_curve(CURVE, tmp_path / "a", layout="sglang").read_text())
    assert sglang == {
        "sample_batch_tokens": [1, 8, 24], "sample_steps_per_sec": [181.25, 190.5, 77.0], "max_batch_tokens": 32
    }  # fmt: skip
    deepinfer = json.loads(write_curve(CURVE, tmp_path / "b", layout="deepinfer").read_text())
    assert deepinfer[0] == [1, 1000 / 181.25]


def test_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    """An output that stands already is refused without permission, and left as it was."""
    path = write_curve(CURVE, tmp_path / "sps.json")
    before = path.read_bytes()
    with pytest.raises(OutputExists, match="--overwrite"):
        write_curve(CURVE, path, layout="csv")
    assert path.read_bytes() == before
    write_curve(CURVE, path, layout="csv", overwrite=True)
    assert path.read_text().startswith("tokens,")


def test_unknown_layout_is_refused(tmp_path: Path) -> None:
    """A layout nobody reads is refused before anything is written."""
    with pytest.raises(CurveError, match=", ".join(CURVE_WRITERS)):
        write_curve(CURVE, tmp_path / "x", layout="yaml")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{broken", "not readable as JSON"),
        ('{"sample_batch_tokens": [1], "sample_steps_per_sec": [NaN]}', "not readable as JSON"),
        ('{"a": 1}', "no curve"),
        ('{"bias_seconds": 1}', "additive"),
        ('{"sample_batch_tokens": [1, 2]}', "sample_steps_per_sec: missing"),
        ('{"sample_batch_tokens": 3, "sample_steps_per_sec": [1]}', "flat list"),
        ('{"schema": "dspark-calib/sps/1"}', "points"),
        ('{"schema": "dspark-calib/sps/1", "points": [{"tokens": 1}]}', "point 1: steps_per_second is missing"),
        (
            '{"schema": "dspark-calib/sps/1", "lookup": "cubic", "points": [{"tokens": 1, "steps_per_second": 2}]}',
            "lookup = 'cubic'",
        ),
        (
            '{"schema": "dspark-calib/sps/1", "conditions": {}, "points": [{"tokens": 1, "steps_per_second": 2}]}',
            "conditions",
        ),
        (
            '{"schema": "dspark-calib/sps/1", "points": [{"tokens": 1, "steps_per_second": 2, "samples_ms": 3}]}',
            "samples_ms",
        ),
        ("[[1, 2], [3]]", "point 2 = \\[3\\]"),
        ("[[1, 0]]", "point 1, step_ms = 0"),
        ("[[2, 1.5], [2, 1.6]]", "point 2, tokens = 2"),
        ("[]", "0 token counts"),
        ("batch,ms\n1,2\n", "row 1"),
        ("", "row 1"),
        ("tokens,step_ms\n1,2\n2,x\n", "row 3 = '2,x'"),
        ("tokens,step_ms\n1\n", "row 2"),
        ("tokens,step_ms\n1,-2\n", "step_ms = -2"),
        ("tokens,steps_per_second\n4,2\n2,3\n", "point 2, tokens = 2"),
    ],
)
def test_broken_files_are_refused_by_place(tmp_path: Path, text: str, message: str) -> None:
    """Every broken file gets one message that names it and the place."""
    path = tmp_path / "curve.txt"
    path.write_text(text)
    with pytest.raises(CurveError, match=message) as caught:
        read_curve(path)
    assert str(path) in str(caught.value)


def test_missing_file_names_the_command(tmp_path: Path) -> None:
    """A curve that is not there says how to make one."""
    with pytest.raises(CurveError, match="profile-sps"):
        read_curve(tmp_path / "none.json")


def test_csv_of_step_times(tmp_path: Path) -> None:
    """A CSV may give milliseconds instead of speeds."""
    path = tmp_path / "c.csv"
    path.write_text("tokens,step_ms\n1, 5\n8,10\n")
    assert read_curve(path).steps_per_second.tolist() == [200, 100]
