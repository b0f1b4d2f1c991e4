"""The threshold sweep against a literal loop over rounds."""

import numpy as np
import pytest

from dspark_calib.summary.survey import survey_batches
from dspark_calib.summary.sweep import THRESHOLDS, SweepCounts, cut_by_limit
from dspark_calib.survival import confidence
from dspark_calib.trace import Labels, Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def mixed_trace(seed: int = 0) -> Trace:
    """Rounds of two domains; some end by an accepted EOS, some are cut by the length limit."""
    from dataclasses import replace

    rng = np.random.default_rng(seed)
    rounds = synthetic_rounds(rng, prompts=12, rounds_per_prompt=20, temperatures=[1.5, 1.2, 1.0, 0.8])
    n = len(rounds)
    observed = np.where(rng.random(n) < 0.2, rng.integers(0, 5, n), 4).astype(np.int16)
    limited = rng.random(n) < 0.3
    accepted = np.minimum(rounds.accepted, observed)
    observed = np.where(limited | (accepted == observed), observed, 4).astype(np.int16)
    return Trace.of(
        replace(
            rounds,
            accepted=accepted.astype(np.int16),
            observed=observed,
            anchor=np.full(n, -1, np.int32),
            domain=Labels.encode(["math" if i < 120 else "a & b" for i in range(n)]),
            ending=Labels.encode(["length" if cut else "eos" for cut in limited]),
        ),
        synthetic_provenance(4),
    )


def literal_sweep(trace: Trace, threshold: float, domain: str | None) -> tuple[float, float]:
    """DeepSpec's counting, one round after the other: tokens kept and thrown away per step."""
    rounds = trace.read()
    c = confidence(rounds.confidence_logits)
    kept, thrown, steps = 0, 0, 0
    for i in range(len(rounds)):
        if domain is not None and rounds.domain.decode()[i] != domain:
            continue
        observed, accepted = int(rounds.observed[i]), int(rounds.accepted[i])
        if rounds.ending.decode()[i] == "length" and observed < 4:
            continue
        length = 0
        while length < 4 and c[i, length] >= threshold:
            length += 1
        length = min(length, observed)
        taken = min(accepted, length)
        eos_accepted = observed < 4 and accepted == observed and taken == observed
        kept += taken + (0 if eos_accepted else 1)
        thrown += length - taken
        steps += 1
    return kept / steps, thrown / steps


@pytest.mark.parametrize("domain", [None, "math", "a & b"])
def test_sweep_equals_a_literal_loop(domain: str | None) -> None:
    """Tokens kept and thrown away per step equal those of a loop over rounds, whole and by domain."""
    trace = mixed_trace()
    counts = SweepCounts(4, ["a & b", "math"], "domain")
    for batch in survey_batches(trace, None):
        counts.add(batch)
    sweep = counts.sweep(domain)
    assert sweep is not None
    assert sweep.calibrated is None
    for index in (0, 4, 7, 9):
        kept, thrown = literal_sweep(trace, THRESHOLDS[index], domain)
        assert sweep.raw[index].accepted == pytest.approx(kept, rel=1e-12)
        assert sweep.raw[index].rejected == pytest.approx(thrown, rel=1e-12)
        assert sweep.raw[index].acceptance_rate == pytest.approx(kept / (kept + thrown), rel=1e-12)


def test_threshold_zero_keeps_everything() -> None:
    """At threshold 0 nothing is cut: tokens kept per step are τ."""
    trace = mixed_trace(1)
    counts = SweepCounts(4, [], None)
    for batch in survey_batches(trace, None):
        counts.add(batch)
    rounds = trace.read()
    whole = ~cut_by_limit(rounds)
    ended = (rounds.accepted == rounds.observed) & (rounds.observed < 4)
    tau = np.mean((rounds.accepted + ~ended)[whole])
    sweep = counts.sweep(None)
    assert sweep is not None
    assert sweep.raw[0].accepted == pytest.approx(tau, rel=1e-12)


def test_identity_temperatures_change_nothing() -> None:
    """With temperatures of 1 the calibrated sweep equals the raw one."""
    trace = mixed_trace(2)
    counts = SweepCounts(4, [], None)
    for batch in survey_batches(trace, lambda keys: np.ones((len(keys), 4))):
        counts.add(batch)
    sweep = counts.sweep(None)
    assert sweep is not None
    assert sweep.calibrated == sweep.raw


def test_empty_group_has_no_sweep() -> None:
    """A group without rounds has no sweep rather than zeros."""
    counts = SweepCounts(4, ["nobody"], "domain")
    for batch in survey_batches(mixed_trace(), None):
        counts.add(batch)
    assert counts.sweep("nobody") is None
