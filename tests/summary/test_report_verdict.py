"""The verdict follows from the interval of the paired change, the evaluation and the findings."""

from dataclasses import replace

import pytest
from example_record import around, example_report, group, without_calibration

from dspark_calib.metrics.estimate import UNDEFINED, Estimate
from dspark_calib.summary.measures import Group
from dspark_calib.summary.record import Evaluation, Finding, Outcome
from dspark_calib.summary.verdict import compute_verdict

PAIRING = Finding(name="wrong_row", severity="stop", count=4000, message="labels fit the row before")


def changed(by: Estimate) -> tuple[Group, ...]:
    """One group whose temperatures change the mean ECE by this much."""
    whole = group("all", 12_000, 180)
    assert whole.change is not None
    return (replace(whole, change=replace(whole.change, mean_ece=by)),)


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (around(-0.02, 0.004), "ship"),
        (around(-0.02, 0.02), "keep_raw"),
        (around(0.02, 0.02), "keep_raw"),
        (around(0.02, 0.004), "do_not_ship"),
        (Estimate(value=0.0, se=0.0, low=0.0, high=0.0), "keep_raw"),
        (Estimate(value=-0.02), "undecided"),
        (UNDEFINED, "undecided"),
    ],
)
def test_outcome_follows_the_interval(change: Estimate, outcome: Outcome) -> None:
    """The whole interval must lie on one side of zero; without an interval nothing is decided."""
    assert compute_verdict("out_of_fold", changed(change), (), ()).outcome == outcome


@pytest.mark.parametrize(("evaluation", "outcome"), [("independent", "ship"), ("in_sample", "undecided")])
def test_in_sample_numbers_decide_nothing(evaluation: Evaluation, outcome: Outcome) -> None:
    """However good they look."""
    assert compute_verdict(evaluation, changed(around(-0.05, 0.001)), (), ()).outcome == outcome


def test_a_finding_that_stops_a_fit_stops_the_verdict() -> None:
    """Unless it was accepted by name, or all were."""
    groups = changed(around(-0.05, 0.001))
    stopped = compute_verdict("out_of_fold", groups, (PAIRING,), ())
    assert (stopped.outcome, stopped.reasons) == ("undecided", ("wrong_row",))
    assert compute_verdict("out_of_fold", groups, (PAIRING,), ("wrong_row",)).outcome == "ship"
    assert compute_verdict("out_of_fold", groups, (PAIRING,), ("all",)).outcome == "ship"
    assert compute_verdict("out_of_fold", groups, (replace(PAIRING, severity="warning"),), ()).outcome == "ship"


def test_groups_and_positions_made_worse_are_named() -> None:
    """A verdict for the whole does not hide where the temperatures hurt."""
    whole, *_ = changed(around(-0.02, 0.004))
    chat = replace(changed(around(0.03, 0.004))[0], name="chat")
    assert whole.change is not None
    hurt = tuple(replace(r, ece=around(0.01, 0.001)) if r.position == 5 else r for r in whole.change.positions)
    whole = replace(whole, change=replace(whole.change, positions=hurt))
    verdict = compute_verdict("out_of_fold", (whole, chat), (), ())
    assert verdict.outcome == "ship"
    assert verdict.worse_groups == ("chat",)
    assert verdict.worse_positions == (5,)


def test_raw_confidences() -> None:
    """Without a calibration: at the floor, off, or undefined."""
    whole = without_calibration(example_report()).groups[0]
    rows = whole.raw.positions
    at_floor = replace(whole, raw=replace(whole.raw, positions=tuple(replace(r, ece_at_floor=True) for r in rows)))
    nothing = replace(whole, raw=replace(whole.raw, positions=tuple(replace(r, ece_at_floor=None) for r in rows)))
    assert compute_verdict(None, (whole,), (), ()).outcome == "fit_needed"
    assert compute_verdict(None, (at_floor,), (), ()).outcome == "raw_at_floor"
    assert compute_verdict(None, (nothing,), (), ()).outcome == "undecided"


def test_counters_say_nothing_about_confidence() -> None:
    """No groups, no verdict."""
    assert compute_verdict(None, (), (), ()).outcome == "no_confidence"


def test_worst_position_is_over_its_floor() -> None:
    """The largest excess over the floor, not the largest ECE."""
    whole = without_calibration(example_report()).groups[0]
    rows = tuple(
        replace(r, ece=around(0.05, 0.01), ece_floor=0.05 if r.position != 6 else 0.01) for r in whole.raw.positions
    )
    verdict = compute_verdict(None, (replace(whole, raw=replace(whole.raw, positions=rows)),), (), ())
    assert verdict.worst_position == 6


@pytest.mark.parametrize("change", [-0.05, 0.0, 0.05])
def test_temperatures_of_one_keep_the_raw_confidences(change: float) -> None:
    """Fits without each fold may move where the shipped one does not: what ships changes nothing."""
    assert compute_verdict("out_of_fold", changed(around(change, 0.001)), (), (), identity=True).outcome == "keep_raw"
    assert compute_verdict("in_sample", changed(around(change, 0.001)), (), (), identity=True).outcome == "undecided"
