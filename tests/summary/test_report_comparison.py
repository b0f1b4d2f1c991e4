"""NEW against OLD: signs, pairing and order against numbers worked out by hand."""

import numpy as np
import pytest
from example_record import example_report

from dspark_calib.errors import TraceFormatError
from dspark_calib.metrics.estimate import UNDEFINED, Estimate
from dspark_calib.summary.comparison import Key, Measured, compute_comparison, json_side
from dspark_calib.summary.json_form import report_to_json


def measured(value: float, se: float) -> Measured:
    """A number without draws."""
    return Measured(estimate=Estimate(value=value, se=se))


def side(ece: Measured, tau: Measured) -> dict[Key, Measured]:
    """Two measures, one where less is better and one where more is."""
    return {("all", "ece", 1): ece, ("all", "accepted_length", None): tau}


def test_signs_and_unpaired_errors() -> None:
    """More ECE and less τ are worse; independent standard errors add in squares."""
    new, old = side(measured(0.05, 0.003), measured(3.0, 0.03)), side(measured(0.02, 0.004), measured(3.3, 0.04))
    comparison = compute_comparison(new, old, name="old", confidences="raw")
    ece = next(row for row in comparison.rows if row.measure == "ece")
    tau = next(row for row in comparison.rows if row.measure == "accepted_length")
    assert ece.difference.value == pytest.approx(0.03)
    assert ece.difference.se == pytest.approx(0.005)  # √(.003² + .004²)
    assert ece.harm.value == pytest.approx(6.0)
    assert tau.difference.value == pytest.approx(-0.3)
    assert tau.harm.value == pytest.approx(6.0)  # .3 / √(.03² + .04²)
    assert (ece.change, tau.change) == ("worse", "worse")
    assert not comparison.paired


def test_paired_draws_shrink_the_error() -> None:
    """What both sides share cancels: the standard error is that of the difference of draws."""
    rng = np.random.default_rng(0)
    shared = rng.normal(0, 0.01, 1000)
    new = Measured(estimate=Estimate(value=0.022, se=0.01), draws=0.022 + shared + rng.normal(0, 0.0005, 1000))
    old = Measured(estimate=Estimate(value=0.020, se=0.01), draws=0.020 + shared)
    key = ("all", "ece", 1)
    row = compute_comparison({key: new}, {key: old}, name="old", confidences="raw").rows[0]
    assert row.difference.se == pytest.approx(0.0005, rel=0.1)
    assert row.change == "worse"


def test_worst_first_and_unclear_in_between() -> None:
    """Rows are ordered by harm; an interval over zero is not distinguishable."""
    new = {("all", "ece", k): measured(0.02 + d, 0.003) for k, d in ((1, -0.02), (2, 0.001), (3, 0.02))}
    old = {("all", "ece", k): measured(0.02, 0.003) for k in (1, 2, 3)}
    rows = compute_comparison(new, old, name="old", confidences="raw").rows
    assert [row.position for row in rows] == [3, 2, 1]
    assert [row.change for row in rows] == ["worse", "unclear", "better"]


def test_what_one_side_lacks_is_left_out() -> None:
    """A group, a position or a number that only one side has is not compared."""
    new = side(measured(0.05, 0.003), Measured(estimate=UNDEFINED))
    old = {("all", "ece", 1): measured(0.05, 0.003), ("all", "accepted_length", None): measured(3.0, 0.1)}
    rows = compute_comparison(new, old, name="old", confidences="raw").rows
    assert [row.measure for row in rows] == ["ece"]


def test_without_standard_errors_nothing_is_claimed() -> None:
    """One prompt on either side gives a difference and no reading."""
    new, old = (side(Measured(estimate=Estimate(value=v)), measured(3.0, 0.1)) for v in (0.5, 0.1))
    row = next(r for r in compute_comparison(new, old, name="o", confidences="raw").rows if r.measure == "ece")
    assert (row.difference.value, row.difference.low, row.change) == (0.4, None, "unclear")


def test_report_json_compared_with_itself_shows_nothing() -> None:
    """A report's own JSON reads back as the numbers it was written from."""
    data = report_to_json(example_report())
    new = json_side(data, "calibrated", "report.json")
    rows = compute_comparison(new, new, name="itself", confidences="calibrated").rows
    assert len(rows) == 4 * (2 + 5 * 7)
    assert all(row.difference.value == 0 and row.change == "unclear" for row in rows)
    assert new["all", "ece", 1].estimate.value == pytest.approx(0.016)
    assert new["all", "bias", 2].estimate.value > 0  # its size


@pytest.mark.parametrize("broken", [{"schema": "something/2"}, {"schema": "dspark-calib/report/1", "groups": [{}]}])
def test_broken_old_report_is_refused(broken: dict[str, object]) -> None:
    """Another schema or missing keys are one clear error with the file's name."""
    with pytest.raises(TraceFormatError, match=r"old\.json"):
        json_side(broken, "raw", "old.json")


def test_a_group_that_is_everything_is_told_once() -> None:
    """One domain on both sides repeats "all"; one domain against two does not."""
    value, other = measured(0.02, 0.001), measured(0.03, 0.001)
    one: dict[Key, Measured] = {("all", "mean_ece", None): value, ("math", "mean_ece", None): value}
    two: dict[Key, Measured] = {**one, ("code", "mean_ece", None): other}
    groups = [
        {row.group for row in compute_comparison(one, old, name="old", confidences="raw").rows} for old in (one, two)
    ]
    assert groups == [{"all"}, {"all", "math"}]
