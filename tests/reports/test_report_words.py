"""Numerals and sentences: what is said follows from the numbers by rule."""

from dataclasses import replace

import pytest
from example_record import around, comparison, example_report, group, temperatures, without_calibration

from dspark_calib.metrics.estimate import UNDEFINED, Estimate
from dspark_calib.summary.record import Outcome, Verdict
from dspark_calib_reports import narrative, numerals
from dspark_calib_reports.first_screen import cautions, key_facts, settings
from dspark_calib_reports.verdict import HEADLINES, state_verdict, state_worst_position


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0571, "0.057"), (0.00049, "<0.001"), (-0.00049, ">−0.001"), (0.0, "0.000"), (1.0, "1.000"), (None, "–")],
)
def test_fractions(value: float | None, text: str) -> None:
    """A small number is never shown as zero, a missing one is a dash."""
    assert numerals.fraction(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0125, "+0.013"), (-0.2, "−0.200"), (0.0, "0.000"), (0.0001, "<0.001")])
def test_differences_carry_their_sign(value: float, text: str) -> None:
    """A difference shows its direction."""
    assert numerals.signed(value) in {text, text.replace("0.013", "0.012")}


@pytest.mark.parametrize(
    ("value", "text"), [(0.769, "76.9 %"), (0.9999, ">99.9 %"), (1.0, "100.0 %"), (0.0001, "<0.1 %"), (0.0, "0.0 %")]
)
def test_rates_are_not_rounded_to_certainty(value: float, text: str) -> None:
    """99.99 % is not 100 % and 0.01 % is not 0 %."""
    assert numerals.percent(value) == text


def test_tuple_parses_back_exactly() -> None:
    """What the copy button copies is the tuple, digit for digit."""
    values = (1.0, 2 ** (1 / 32), 0.125)
    assert tuple(float(part) for part in numerals.tuple_text(values).split(", ")) == values


def test_long_and_unprintable_names_are_shortened() -> None:
    """300 characters become 47 with both ends, control characters a replacement."""
    assert numerals.shown_name("a" * 200 + "b" * 100) == "a" * 30 + "…" + "b" * 16
    assert numerals.shown_name("x\x00\x1b") == "x\ufffd\ufffd"


@pytest.mark.parametrize("outcome", list(HEADLINES))
def test_every_outcome_has_a_sentence(outcome: Outcome) -> None:
    """Each verdict reads as one sentence with the numbers it rests on."""
    report = example_report()
    verdict = Verdict(outcome=outcome, reasons=("in_sample",), mean_ece_change=around(-0.03, 0.003), worst_position=1)
    text = state_verdict(replace(report, verdict=verdict))
    assert text.endswith(".")
    assert "None" not in text
    if outcome in {"ship", "keep_raw", "do_not_ship"}:
        assert "−0.030 [−0.036, −0.024]" in text


def test_identity_is_called_identity() -> None:
    """Temperatures that are all 1 change nothing, and the page says that rather than "no difference"."""
    report = example_report()
    ones = replace(temperatures(7), values=(1.0,) * 7)
    verdict = Verdict(outcome="keep_raw", reasons=(), mean_ece_change=around(0.0, 0.0), worst_position=1)
    assert "All temperatures are 1" in state_verdict(replace(report, temperatures=ones, verdict=verdict))
    assert "no difference" in state_verdict(replace(report, verdict=verdict))


def test_worst_position_is_named_with_its_floor() -> None:
    """The first screen says where the largest error remains, and whether it is more than noise."""
    worst = state_worst_position(example_report())
    assert worst == "Farthest from calibrated is position 1: ECE 0.016 [0.008, 0.024] against a noise floor of 0.012."
    assert state_worst_position(replace(example_report(), groups=())) is None


def test_in_sample_stands_beside_the_numbers() -> None:
    """In-sample numbers are called so on the first screen."""
    report = replace(example_report(), evaluation="in_sample")
    assert any("in-sample" in line for line in cautions(report))
    assert any("in-sample" in fact.label for fact in key_facts(report))


def test_blocks_in_place_of_prompts_are_said_loudly() -> None:
    """Without prompt ids the first screen says what stands in for them."""
    report = example_report()
    blocks = replace(report, source=replace(report.source, clusters="blocks of 100 rounds"))
    assert any("no prompt ids: blocks of 100 rounds" in line for line in cautions(blocks))
    hashed = replace(report, source=replace(report.source, clusters="prompts hashed to 50,000 clusters"))
    assert "Behind every interval: prompts hashed to 50,000 clusters." in cautions(hashed)


def test_a_fit_that_advises_identity_is_quoted() -> None:
    """What the fit itself decided stands on the first screen where it is against shipping."""
    report = example_report()
    kept = replace(temperatures(7), decision="keep_identity", reason="no gain on held-out prompts")
    assert any("no gain on held-out prompts" in line for line in cautions(replace(report, temperatures=kept)))
    assert not any("The fit advises" in line for line in cautions(report))


def test_few_prompts_are_said() -> None:
    """Under 30 prompts the first screen warns about the intervals."""
    report = replace(example_report(), groups=(group("all", 900, 12),))
    assert any("12 prompts" in line for line in cautions(report))


def test_settings_carry_every_digit() -> None:
    """DeepInfer's variables hold the temperatures without brackets."""
    texts = {setting.label: setting.text for setting in settings(temperatures(7))}
    assert texts["DeepInfer"].endswith("DEEPINFER_DFLASH_CONFIDENCE_HEAD_TEMPERATURE=1.6,1.55,1.5,1.45,1.4,1.35,1.3")
    assert settings(None) == ()


def test_ece_sentence_names_the_worst_position_and_the_floor() -> None:
    """The largest error leads, positions at the floor are listed."""
    text = narrative.state_ece(example_report().groups[0])
    assert "at position 1, raw 0.080" in text
    assert "at the noise floor: positions 2, 3, 4, 5, 6, 7" in text


def test_bias_sentence_needs_the_whole_interval() -> None:
    """A bias whose interval holds zero is not called clear."""
    whole = without_calibration(example_report()).groups[0]
    rows = tuple(replace(row, bias=around(0.001, 0.01)) for row in whole.raw.positions)
    text = narrative.state_bias(replace(whole, raw=replace(whole.raw, positions=rows)))
    assert "nowhere clear of zero" in text


def test_reversed_ranking_is_said() -> None:
    """AUROC clearly below ½ is called an inverted order."""
    whole = example_report().groups[0]
    rows = tuple(replace(row, auroc=around(0.4, 0.02)) for row in whole.raw.positions)
    assert "inverted" in narrative.state_auroc(replace(whole, raw=replace(whole.raw, positions=rows)))


def test_comparison_leads_with_what_got_worse() -> None:
    """The first words are how many got worse, then the worst."""
    text = narrative.state_comparison(comparison())
    assert "1 worse, 1 better, of 3; worst first: all · ECE at 3, +0.030" in text


def test_undefined_numbers_make_true_sentences() -> None:
    """With nothing defined the sentences say that, and why."""
    whole = example_report().groups[0]
    rows = tuple(
        replace(row, ece=UNDEFINED, bias=UNDEFINED, auroc=UNDEFINED, corp=None, missing="single class")
        for row in whole.raw.positions
    )
    empty = replace(whole, raw=replace(whole.raw, positions=rows), calibrated=None)
    for state in (narrative.state_ece, narrative.state_bias, narrative.state_auroc, narrative.state_corp):
        assert "single class" in state(empty)


def test_estimate_without_interval_has_no_direction() -> None:
    """One prompt gives a bias but no claim about it."""
    whole = without_calibration(example_report()).groups[0]
    rows = tuple(replace(row, bias=Estimate(value=0.3)) for row in whole.raw.positions)
    text = narrative.state_all_reliability(replace(whole, raw=replace(whole.raw, positions=rows)))
    assert "overconfident at 0" in text
