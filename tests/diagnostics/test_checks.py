"""Each failure people really had is found, named and counted; a clean trace has no finding."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_calib import diagnostics
from dspark_calib.calibration import fit_calibration
from dspark_calib.diagnostics import check_trace, require_accepted
from dspark_calib.diagnostics.finding import STOPPING
from dspark_calib.errors import FindingsNotAccepted
from dspark_calib.trace import Labels, Trace, combine_traces, concat_rounds
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

GAMMA = 4
PROVENANCE = synthetic_provenance(GAMMA)


def rounds(seed: int = 0, prompts: Any = 60) -> Any:
    """A clean trace's rounds."""
    return synthetic_rounds(
        np.random.default_rng(seed),
        prompts=prompts,
        rounds_per_prompt=50,
        temperatures=[1.5] * GAMMA,
        prompt_effect_sd=0.5,
    )


def names(found_in: Any, provenance: Any = PROVENANCE) -> Any:
    """Names of the findings."""
    return [f.name for f in check_trace(Trace.of(found_in, provenance))]


@pytest.mark.parametrize("seed", range(8))
def test_clean_traces_have_no_finding(seed: int) -> None:
    """No false alarm, with strong prompt effects and few prompts."""
    assert names(rounds(seed, prompts=20)) == []


@pytest.mark.parametrize("lag", [-3, -2, -1, 1, 2, 3])
def test_labels_of_another_row_are_found(lag: int) -> None:
    """Labels shifted by up to three rows: the lag is named, and the fit does not run."""
    shifted = replace(rounds(), accepted=np.roll(rounds().accepted, lag))
    found = check_trace(Trace.of(shifted, PROVENANCE))
    assert [f.name for f in found] == ["wrong_row"]
    assert f"{abs(lag)} {'later' if lag > 0 else 'earlier'}" in found[0].message
    with pytest.raises(FindingsNotAccepted, match="--accept wrong_row"):
        fit_calibration(Trace.of(shifted, PROVENANCE))


def test_censored_rounds_are_found_and_counted() -> None:
    """observed < γ that no EOS explains is a scheduler's doing."""
    clean = rounds()
    cut = np.arange(len(clean)) % 3 == 0
    verified = np.where(cut, 2, GAMMA).astype(np.int16)
    censored = replace(clean, observed=verified, verified=verified, accepted=np.minimum(clean.accepted, verified))
    found = check_trace(Trace.of(censored, PROVENANCE))
    assert [(f.name, f.count) for f in found] == [("censored_rounds", int(cut.sum()))]


def test_an_accepted_eos_is_not_censoring() -> None:
    """A block that the text ended carries all its labels."""
    clean = rounds()
    ended = replace(
        clean,
        accepted=np.full(len(clean), 2, np.int16),
        observed=np.full(len(clean), 2, np.int16),
        anchor=(clean.prompt_length + clean.response_length - 3).astype(np.int32),
    )
    assert "censored_rounds" not in names(ended)


def test_values_that_look_like_probabilities_are_found() -> None:
    """Everything in [0, 1]: probabilities in place of logits; never guessed, always said."""
    clean = rounds()
    squashed = replace(clean, confidence_logits=(1 / (1 + np.exp(-clean.confidence_logits))).astype(np.float32))
    assert names(squashed) == ["looks_like_probabilities"]


def test_logits_that_carry_a_temperature_are_found() -> None:
    """Provenance says calibrated logits were logged."""
    assert names(rounds(), replace(PROVENANCE, calibration_applied=(1.2,) * GAMMA)) == ["already_calibrated"]


def test_identity_already_applied_is_no_finding() -> None:
    """Dividing by one changes nothing."""
    assert names(rounds(), replace(PROVENANCE, calibration_applied=(1.0,) * GAMMA)) == []


def test_mixed_laws_are_found_where_mixing_was_allowed() -> None:
    """Greedy beside sampled: found even after --allow-mixed."""
    greedy = replace(PROVENANCE, label_law="greedy", temperature=0.0)
    mixed = combine_traces([Trace.of(rounds(1), PROVENANCE, "a"), Trace.of(rounds(2), greedy, "b")], allow_mixed=True)
    found = {f.name: f.count for f in check_trace(mixed)}
    assert found["mixed_laws"] == 3000


def test_duplicate_rounds_are_found() -> None:
    """A shard read twice: every repeated round is counted."""
    clean = rounds()
    assert [
        (f.name, f.count) for f in check_trace(Trace.of(concat_rounds([clean, clean.take(slice(0, 70))]), PROVENANCE))
    ] == [("duplicate_rounds", 70)]


def test_one_prompt_under_two_ids_is_found() -> None:
    """All rounds of one prompt under another id too."""
    clean = rounds()
    again = replace(clean.take(slice(0, 50)), prompt_id=Labels.constant("again", 50))
    found = check_trace(Trace.of(concat_rounds([clean, again]), PROVENANCE))
    assert [f.name for f in found] == ["prompt_under_two_ids"]
    assert "again" in found[0].message


def test_what_the_collection_counted_is_passed_on() -> None:
    """Findings in trace.json stop a fit too."""
    noted = replace(PROVENANCE, findings={"responses_not_from_target": 3})
    assert names(rounds(), noted) == ["responses_not_from_target"]


@pytest.mark.parametrize("accept", [("all",), ("wrong_row", "duplicate_rounds")])
def test_findings_are_accepted_by_name(accept: Any) -> None:
    """Every stopping finding must be accepted, one by one or all."""
    shifted = replace(rounds(), accepted=np.roll(rounds().accepted, 1))
    found = check_trace(Trace.of(shifted, PROVENANCE))
    require_accepted(found, accept)
    with pytest.raises(FindingsNotAccepted):
        require_accepted(found, ("duplicate_rounds",))


def test_a_name_that_no_finding_has_is_refused() -> None:
    """A misspelled name would accept nothing, and be found out in the next week's log."""
    with pytest.raises(FindingsNotAccepted, match=r"--accept censored: no finding has that name; .*censored_rounds"):
        require_accepted((), ("censored",))
    require_accepted((), ("censored_rounds", "all"))


def test_every_stopping_finding_is_listed() -> None:
    """The list of names is that of the checks' own code."""
    written = {
        name
        for module in Path(diagnostics.__file__).parent.glob("*.py")
        for name in re.findall(r'name="([a-z_]+)",\s+severity="stop"', module.read_text(encoding="utf-8"))
    }
    assert written <= set(STOPPING)
    assert set(STOPPING) - written == {"mixed_laws", "responses_not_from_target"}  # these come with the trace


def test_a_search_for_repetition_that_ends_early_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above two million rounds only the first ones are compared, and the findings say how many were not."""
    monkeypatch.setattr("dspark_calib.diagnostics.repetition.MOST_ROUNDS", 1000)
    trace = Trace.of(rounds(), PROVENANCE)
    (found,) = check_trace(trace)
    assert (found.name, found.severity, found.count) == ("repetition_seen_in_part", "note", trace.num_rounds - 1000)
    require_accepted((found,), ())
