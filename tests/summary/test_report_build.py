"""The whole record from small traces: names that collide, groups that are everything, other weeks."""

from dataclasses import replace

import numpy as np
import pytest

from dspark_calib.summary.build import OldSide, compute_report
from dspark_calib.trace import Labels, Rounds, Trace, concat_rounds
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def rounds_of(seed: int, domain: str, mean: float = 1.7) -> Rounds:
    """Twenty prompts of one domain."""
    rng = np.random.default_rng(seed)
    return synthetic_rounds(
        rng,
        prompts=20,
        rounds_per_prompt=30,
        temperatures=[1.5, 1.2],
        logit_mean=mean,
        first_prompt=100 * seed,
        domain=domain,
    )


def trace_of(*parts: Rounds) -> Trace:
    """A trace in memory."""
    return Trace.of(concat_rounds(list(parts)), synthetic_provenance(2))


def test_a_domain_called_all_does_not_replace_the_whole() -> None:
    """The whole comes first, whatever a domain is called."""
    report = compute_report(trace_of(rounds_of(1, "all"), rounds_of(2, "chat", 0.5)), draws=60)
    assert [(group.name, group.rounds) for group in report.groups] == [("all", 1200), ("all", 600), ("chat", 600)]
    sweeps = [group.sweep.raw[0].accepted for group in report.groups if group.sweep]
    assert sweeps[0] == pytest.approx((sweeps[1] + sweeps[2]) / 2)


def test_a_single_domain_adds_no_group() -> None:
    """One domain that is everything says nothing beside the whole."""
    report = compute_report(trace_of(rounds_of(1, "math")), draws=60)
    assert [group.name for group in report.groups] == ["all"]
    assert report.source.domains == ("math",)


def test_rounds_without_a_domain_are_a_group_of_their_own() -> None:
    """Where some rounds name a domain, the others are shown as such, with their sweep."""
    nameless = replace(rounds_of(2, "x"), domain=Labels.constant(None, 600))
    report = compute_report(trace_of(rounds_of(1, "math"), nameless), draws=60)
    assert {group.name: group.rounds for group in report.groups} == {"all": 1200, "math": 600, "(none)": 600}
    assert all(group.sweep is not None for group in report.groups)


def test_threshold_zero_is_the_accepted_length() -> None:
    """The sweep at threshold 0 and τ are one number by two ways."""
    report = compute_report(trace_of(rounds_of(1, "math"), rounds_of(2, "chat", 0.5)), draws=60)
    for group in report.groups:
        assert group.sweep is not None
        assert group.sweep.raw[0].accepted == pytest.approx(group.acceptance.accepted_length.value)


def test_a_trace_against_itself_shows_no_difference() -> None:
    """Every paired difference is 0 and unclear."""
    trace = trace_of(rounds_of(1, "math"), rounds_of(2, "chat", 0.5))
    comparison = compute_report(trace, old=OldSide(name="itself", trace=trace), draws=60).comparison
    assert comparison is not None
    assert comparison.rows
    assert {row.difference.value for row in comparison.rows} == {0.0}
    assert {row.change for row in comparison.rows} == {"unclear"}


def test_the_same_seed_gives_the_same_report() -> None:
    """Nothing but the inputs and the seed enters a report."""
    trace = trace_of(rounds_of(1, "math"))
    assert compute_report(trace, draws=60, seed=3) == compute_report(trace, draws=60, seed=3)
