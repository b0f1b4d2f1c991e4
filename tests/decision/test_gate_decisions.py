"""What a gate decides, from numbers known beforehand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from score_records import DRAWS, UNDEFINED, estimate, evaluation, group, position, scores

from dspark_calib.decision.baseline import baseline_from_evaluation, read_baseline_report
from dspark_calib.decision.conditions import Conditions
from dspark_calib.decision.gate import Gate, compute_gate
from dspark_calib.decision.outcome import Outcome
from dspark_calib.errors import ConfigError


def ece_gate(*values: float, se: float = 0.01, limit: float = 0.05) -> Gate:
    """Gate raw confidences with these ECE values, without a noise floor."""
    found = scores([position(k, estimate(v, se)) for k, v in enumerate(values, start=1)])
    return compute_gate(evaluation(group("all", found)), Conditions(max_ece=limit))


@pytest.mark.parametrize(
    ("value", "outcome", "exit_code"),
    [
        (0.02, Outcome.PASS, 0),
        (0.08, Outcome.FAIL, 1),
        (0.04, Outcome.INCONCLUSIVE, 3),
        (0.06, Outcome.INCONCLUSIVE, 3),
    ],
)
def test_the_whole_interval_decides(value: float, outcome: Outcome, exit_code: int) -> None:
    """At se .01 an ECE of .02 lies below .05 ± 1.96 se, .08 above, .04 and .06 on neither side."""
    result = ece_gate(value)
    assert result.outcome is outcome
    assert result.exit_code == exit_code


def test_one_surprise_among_many_is_no_failure() -> None:
    """p = .0124 alone fails; among four checks Holm asks for .00625, and it stays open."""
    assert ece_gate(0.05 + 2.245 * 0.01).outcome is Outcome.FAIL
    assert ece_gate(0.05 + 2.245 * 0.01, 0.0, 0.0, 0.0).outcome is Outcome.INCONCLUSIVE


def test_the_interval_shown_is_the_one_that_decides() -> None:
    """Failing needs the corrected lower end above the limit; the upper end is that of a 95 % interval."""
    result = ece_gate(0.09, 0.0)
    first = result.checks[0]
    assert first.low == pytest.approx(0.09 - 2.2414 * 0.01, abs=1e-5)
    assert first.high == pytest.approx(0.09 + 1.96 * 0.01, abs=1e-5)
    assert first.outcome is Outcome.FAIL


def test_rounds_needed_would_decide() -> None:
    """An open check says for how many rounds the interval would end at the limit."""
    check = ece_gate(0.04).checks[0]
    assert check.rounds_needed == math.ceil(1000 * (1.959964 * 0.01 / 0.01) ** 2)
    assert "about 3842 rounds" in check.reason
    on_it = ece_gate(0.05).checks[0]
    assert on_it.rounds_needed is None
    assert "no number of rounds" in on_it.reason


def test_noise_is_not_held_against_a_drafter() -> None:
    """A plug-in ECE of .03 at a floor of .03 passes a limit of .05 and shows 0, with the plug-in beside it."""
    found = scores([position(1, estimate(0.03, 0.005), floor=0.03)])
    check = compute_gate(evaluation(group("all", found)), Conditions(max_ece=0.05)).checks[0]
    assert check.outcome is Outcome.PASS
    assert (check.value, check.plug_in) == (0.0, 0.03)


@pytest.mark.parametrize(
    ("conditions", "outcome"),
    [
        (Conditions(min_auroc=0.75), Outcome.PASS),
        (Conditions(min_auroc=0.85), Outcome.FAIL),
        (Conditions(min_auroc=0.801), Outcome.INCONCLUSIVE),
        (Conditions(max_bias=0.05), Outcome.PASS),
        (Conditions(max_bias=0.02), Outcome.FAIL),
        (Conditions(max_bias=0.03), Outcome.INCONCLUSIVE),
        (Conditions(max_brier_increase=0.0), Outcome.PASS),
        (Conditions(max_brier_increase=-0.02), Outcome.FAIL),
        (Conditions(min_accepted_length=3.0), Outcome.PASS),
        (Conditions(min_accepted_length=4.0), Outcome.FAIL),
    ],
)
def test_every_condition_looks_at_its_own_measure(conditions: Conditions, outcome: Outcome) -> None:
    """AUROC .8, bias -.03, Brier -.01 and length 3.5, each ± .001, against limits on either side."""
    found = scores([position(1, estimate(0.0), bias=estimate(-0.03), auroc=estimate(0.8))])
    whole = group("all", found, found, brier_change=[estimate(-0.01)], length=estimate(3.5))
    assert compute_gate(evaluation(whole, how="independent"), conditions).outcome is outcome


@pytest.mark.parametrize("policy", [None, "pass", "fail"])
@pytest.mark.parametrize(
    "undefined",
    [
        position(1, UNDEFINED, n=0, missing="no rounds"),
        position(1, estimate(0.01, None), missing="one prompt"),
        position(1, estimate(0.01), floor=None),
    ],
)
def test_what_is_undefined_never_passes(undefined: object, policy: str | None) -> None:
    """Zero rows, no interval or no floor is open under every policy but `fail`, and never a pass."""
    found = scores([undefined])  # type: ignore[list-item]
    result = compute_gate(evaluation(group("all", found)), Conditions(max_ece=0.5), inconclusive=policy)  # type: ignore[arg-type]
    assert result.exit_code == (1 if policy == "fail" else 3)
    assert "cannot pass" in result.checks[0].reason


@pytest.mark.parametrize(("policy", "exit_code"), [(None, 3), ("pass", 0), ("fail", 1)])
def test_open_checks_follow_the_policy(policy: str | None, exit_code: int) -> None:
    """--inconclusive says what an open interval counts as."""
    found = scores([position(1, estimate(0.05, 0.01))])
    result = compute_gate(evaluation(group("all", found)), Conditions(max_ece=0.05), inconclusive=policy)  # type: ignore[arg-type]
    assert result.exit_code == exit_code


def test_a_group_without_calibrated_scores_is_asked_all_the_same() -> None:
    """A group that lost its scores cannot slip through."""
    found = scores([position(1, estimate(0.0))])
    result = compute_gate(
        evaluation(group("all", found, found), group("code", found), how="independent"), Conditions(max_ece=0.5)
    )
    assert [check.undefined for check in result.checks] == [False, True]
    assert result.exit_code == 3


def test_raw_and_in_sample_numbers_are_said() -> None:
    """Without a calibration, and where the temperatures saw the rounds, a warning stands beside the outcome."""
    found = scores([position(1, estimate(0.0))])
    raw = compute_gate(evaluation(group("all", found)), Conditions(max_ece=0.5))
    assert "raw confidences were judged" in raw.warnings[0]
    seen = compute_gate(evaluation(group("all", found, found), how="in_sample"), Conditions(max_ece=0.5))
    assert "in-sample" in seen.warnings[0]


def regression(new: float, old: float, *, se: float = 0.004, new_floor: float = 0.0, old_floor: float = 0.0) -> Gate:
    """Gate one position against a baseline whose draws move independently."""
    rng = np.random.default_rng(0)
    noise = rng.normal(0, se, (2, DRAWS, 1))
    before = scores([position(1, estimate(old, se), floor=old_floor)], old + noise[0])
    after = scores([position(1, estimate(new, se), floor=new_floor)], new + noise[1])
    baseline = baseline_from_evaluation(evaluation(group("all", before)), "raw", "old")
    return compute_gate(evaluation(group("all", after)), Conditions(max_regression=0.0), baseline=baseline)


def test_a_regression_must_be_shown_and_absence_must_have_been_visible() -> None:
    """+.03 at se .006 fails, no change passes, and with an error that could hide .05 nothing is decided."""
    assert regression(0.05, 0.02).outcome is Outcome.FAIL
    quiet = regression(0.02, 0.02)
    assert quiet.outcome is Outcome.PASS
    assert quiet.smallest_detectable == pytest.approx((1.959964 + 1.281552) * 0.004 * math.sqrt(2), rel=0.15)
    blind = regression(0.02, 0.02, se=0.02)
    assert blind.outcome is Outcome.INCONCLUSIVE
    assert blind.checks[0].rounds_needed == math.ceil(1000 * (blind.checks[0].smallest_detectable / 0.05) ** 2)  # type: ignore[operator]


def test_paired_draws_see_what_independent_ones_cannot() -> None:
    """Replicates that move together cancel: the error of the difference is that of their difference."""
    shared = np.random.default_rng(0).normal(0, 0.05, (DRAWS, 1))
    before = scores([position(1, estimate(0.02, 0.05))], shared)
    after = scores([position(1, estimate(0.03, 0.05))], shared + 0.01)
    baseline = baseline_from_evaluation(evaluation(group("all", before)), "raw", "old")
    result = compute_gate(evaluation(group("all", after)), Conditions(max_regression=0.0), baseline=baseline)
    assert result.outcome is Outcome.FAIL


def test_a_smaller_sample_is_not_a_regression() -> None:
    """The same drafter on fewer rounds has a higher floor; that part of the increase is not held against it."""
    assert regression(0.05, 0.03, new_floor=0.04, old_floor=0.01).outcome is Outcome.PASS
    assert regression(0.05, 0.03, new_floor=0.01, old_floor=0.01).outcome is Outcome.FAIL


def test_positions_and_groups_missing_on_either_side_stay_open() -> None:
    """A baseline with more positions or fewer groups leaves checks undefined, never passed."""
    two = scores([position(1, estimate(0.02)), position(2, estimate(0.02))])
    one = scores([position(1, estimate(0.02))])
    baseline = baseline_from_evaluation(evaluation(group("all", two)), "raw", "old")
    result = compute_gate(
        evaluation(group("all", one), group("code", one)), Conditions(max_regression=0.0), baseline=baseline
    )
    assert [(c.group, c.position, c.undefined) for c in result.checks] == [
        ("all", 1, False),
        ("all", 2, True),
        ("code", 1, True),
    ]
    assert result.exit_code == 3


def report(**changes: object) -> dict[str, object]:
    """Return a report JSON with one position."""
    at = {"position": 1, "n": 9, "ece": 0.02, "ece_se": 0.003, "ece_floor": 0.01} | changes
    return {
        "schema": "dspark-calib/report/1",
        "groups": [{"name": "all", "raw": {"positions": [at]}, "calibrated": None}],
    }


def test_a_report_is_a_baseline_with_its_standard_errors(tmp_path: Path) -> None:
    """The report's ece_se and the trace's add up as independent errors."""
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report()), encoding="utf-8")
    after = scores([position(1, estimate(0.04, 0.004), floor=0.01)])
    result = compute_gate(
        evaluation(group("all", after)), Conditions(max_regression=0.0), baseline=read_baseline_report(path, "raw")
    )
    check = result.checks[0]
    assert check.value == pytest.approx(0.02)
    assert check.high == pytest.approx(0.02 + 1.959964 * 0.005)
    assert check.outcome is Outcome.FAIL


@pytest.mark.parametrize(
    "changes", [{"ece_se": None}, {"ece": None}, {"ece_floor": "x"}, {"ece": 1e308}, {"ece_se": True}]
)
def test_a_report_without_standard_errors_decides_nothing(tmp_path: Path, changes: dict[str, object]) -> None:
    """A missing or senseless number leaves the check undefined."""
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report(**changes)), encoding="utf-8")
    after = scores([position(1, estimate(0.04, 0.004), floor=0.01)])
    result = compute_gate(
        evaluation(group("all", after)), Conditions(max_regression=0.0), baseline=read_baseline_report(path, "raw")
    )
    assert result.checks[0].undefined


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"schema": "dspark-calib/report/1"}', '{"schema": "dspark-calib/report/1", "groups": [1]}'],
)
def test_a_file_that_is_no_report_is_refused(tmp_path: Path, text: str) -> None:
    """Another JSON is named as such."""
    path = tmp_path / "report.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"report\.json"):
        read_baseline_report(path, "raw")


@pytest.mark.parametrize(
    ("limits", "culprit"),
    [
        ({}, "nothing to judge"),
        ({"max_regression": 0.0}, "--max-regression needs --baseline"),
        ({"max_brier_increase": 0.0}, "give --calibration"),
    ],
)
def test_questions_that_cannot_be_answered(limits: dict[str, float], culprit: str) -> None:
    """They are refused before anything is judged."""
    with pytest.raises(ConfigError, match=culprit):
        compute_gate(evaluation(group("all", scores([position(1, estimate(0.0))]))), Conditions(**limits))


@pytest.mark.parametrize("limit", [-0.1, 1.5, float("nan"), float("inf")])
def test_limits_out_of_range(limit: float) -> None:
    """A limit that no ECE could break, or NaN, is a mistake."""
    with pytest.raises(ConfigError, match="--max-ece"):
        Conditions(max_ece=limit)


@given(
    st.lists(
        st.tuples(st.none() | st.floats(0, 1), st.none() | st.floats(0, 1), st.none() | st.floats(0, 1)),
        min_size=1,
        max_size=8,
    ),
    st.floats(0, 1),
    st.sampled_from([None, "pass", "fail"]),
)
def test_no_numbers_make_a_gate_contradict_itself(
    values: list[tuple[float | None, float | None, float | None]], limit: float, policy: str | None
) -> None:
    """A passed check's interval lies below the limit, a failed one's above; the JSON is strict; the exit code fits."""
    found = scores([position(k, estimate(v, se), floor=f) for k, (v, se, f) in enumerate(values, start=1)])
    result = compute_gate(evaluation(group("all", found)), Conditions(max_ece=limit), inconclusive=policy)  # type: ignore[arg-type]
    for check in result.checks:
        assert check.outcome is not Outcome.PASS or (check.high is not None and check.high < limit)
        assert check.outcome is not Outcome.FAIL or (check.low is not None and check.low > limit)
        assert (check.value is None) == check.undefined
    assert result.exit_code in {0, 1, 3}
    assert result.exit_code != 0 or not any(check.undefined for check in result.checks)
    json.dumps(result.to_dict(), allow_nan=False)


def test_the_worst_come_first() -> None:
    """Failed before open, farthest from the limit first."""
    result = ece_gate(0.2, 0.05, 0.3, 0.0)
    assert [check.position for check in result.worst(10)] == [3, 1, 2]
