"""Drift on rounds of a real pair: chat against code is seen, one domain against itself is not."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from dspark_calib.decision.cluster_sums import ClusterSums, compute_cluster_sums
from dspark_calib.decision.drift import compute_drift
from dspark_calib.decision.drift_tests import compute_drift_tests
from dspark_calib.trace import Trace, open_trace

DEMO = Path(__file__).resolve().parents[1] / "data" / "traces" / "demo"
SPLITS = 200


def domain(name: str) -> Trace:
    """Return the rounds of one domain."""
    trace = open_trace(DEMO)
    rounds = trace.read(optional=())
    rows = np.array([d == name for d in rounds.domain.decode()])
    return Trace.of(rounds.take(rows), trace.provenance, name=name)


def some_prompts(sums: ClusterSums, chosen: np.ndarray) -> ClusterSums:
    """Return the sums of some prompts; those of a trace are the sums of its prompts."""
    values = {field.name: getattr(sums, field.name) for field in fields(sums)}
    return ClusterSums(**{k: v[chosen] if isinstance(v, np.ndarray) else v for k, v in values.items()})


def test_chat_against_code_is_flagged() -> None:
    """A live shift of the demo pair: chat is the reference, code the traffic; exit code 1, and advice."""
    result = compute_drift(domain("chat"), domain("code"))
    assert result.exit_code == 1
    assert "confidence" in result.moved
    assert result.advice.reason


@pytest.mark.parametrize("name", ["chat", "code", "math"])
def test_one_domain_split_in_two_is_not(name: str) -> None:
    """In at least 95 % of 200 random splits of the prompts of one domain nothing is flagged."""
    sums = compute_cluster_sums(domain(name), None)
    rng = np.random.default_rng(1)
    flagged = 0
    for seed in range(SPLITS):
        order = rng.permutation(sums.clusters)
        halves = [some_prompts(sums, order[side::2]) for side in (0, 1)]
        tests, _ = compute_drift_tests(halves[0], halves[1], np.random.default_rng(seed))
        flagged += any(test.moved for test in tests)
    assert flagged <= SPLITS // 20
