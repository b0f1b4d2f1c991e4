"""The fit-sts command: what it writes and prints, what stops it, and what it accepts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_calib.calibration import read_calibration
from dspark_calib.trace import Labels, Rounds, concat_rounds, write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds
from dspark_calib_cli import app as cli

GAMMA = 2
PROVENANCE = synthetic_provenance(GAMMA)


def drawn(seed: int = 0, *, domain: str = "math", temperature: float = 1.8) -> Rounds:
    """2,000 rounds of 40 prompts."""
    return synthetic_rounds(
        np.random.default_rng(seed),
        prompts=40,
        rounds_per_prompt=50,
        temperatures=[temperature] * GAMMA,
        first_prompt=100 * seed,
        domain=domain,
    )


def shifted(rounds: Rounds) -> Rounds:
    """Labels of the round before."""
    return replace(rounds, accepted=np.roll(rounds.accepted, 1))


def cut(rounds: Rounds) -> Rounds:
    """Half the rounds cut after the first draft, by its confidence."""
    sent = np.where(rounds.confidence_logits[:, 1] < 1, 1, GAMMA).astype(np.int16)
    return replace(rounds, observed=sent, verified=sent, accepted=np.minimum(rounds.accepted, sent))


def squashed(rounds: Rounds) -> Rounds:
    """Probabilities in place of logits."""
    return replace(rounds, confidence_logits=(1 / (1 + np.exp(-rounds.confidence_logits))).astype(np.float32))


def twice(rounds: Rounds) -> Rounds:
    """70 rounds of a shard that was read again."""
    return concat_rounds([rounds, rounds.take(slice(0, 70))])


def renamed(rounds: Rounds) -> Rounds:
    """One prompt under another id too."""
    return concat_rounds([rounds, replace(rounds.take(slice(0, 50)), prompt_id=Labels.constant("again", 50))])


# The eight failures that people had; prefix masks that are no prefix are refused when shards are imported.
BROKEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "wrong_row": (shifted, {}),
    "censored_rounds": (cut, {}),
    "already_calibrated": (lambda r: r, {"calibration_applied": (1.5, 1.5)}),
    "looks_like_probabilities": (squashed, {}),
    "mixed_laws": (lambda r: r, {"findings": {"mixed_laws": 2000}}),
    "duplicate_rounds": (twice, {}),
    "prompt_under_two_ids": (renamed, {}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good trace, one of two domains, and one for each failure."""
    folder = tmp_path_factory.mktemp("fit")
    write_trace(folder / "trace", PROVENANCE, [drawn()])
    write_trace(folder / "domains", PROVENANCE, [drawn(1), drawn(2, domain="chat", temperature=0.7)])
    for name, (change, said) in BROKEN.items():
        write_trace(folder / name, replace(PROVENANCE, **said), [change(drawn())])
    return folder


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run beside the traces."""
    monkeypatch.chdir(folder)


def test_the_defaults_write_a_calibration_and_say_how_it_was_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file holds what is printed; "after" numbers stand under "held out by prompt"; a second run is refused."""
    out = tmp_path / "calibration.json"
    assert cli.run(["fit-sts", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "held out by prompt" in printed
    assert "in-sample" not in printed
    for way in ("identity", "sts", "global", "independent", "platt", "isotonic", "constant"):
        assert way in printed
    calibration = read_calibration(out)
    assert calibration.cross_fit is not None
    assert "cross-fits" in printed
    for k in range(GAMMA):
        low, high = calibration.cross_fit.spread(k + 1)
        assert f"{low:.2f}-{high:.2f}" in printed
    assert calibration.temperatures == pytest.approx((1.8, 1.8), abs=0.4)
    assert calibration.held_out is not None
    assert calibration.held_out.evaluation == "out_of_fold"
    assert cli.run(["fit-sts", "--out", str(out)]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert cli.run(["fit-sts", "--out", str(out), "--overwrite", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(out.read_text())


def test_without_a_holdout_every_number_is_called_in_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--holdout 0 leaves no number under another name."""
    assert cli.run(["fit-sts", "--holdout", "0", "--out", str(tmp_path / "c.json")]) == 0
    printed = capsys.readouterr().out
    assert "held out" not in printed
    assert printed.count("in-sample") >= 2
    held_out = read_calibration(tmp_path / "c.json").held_out
    assert held_out is not None
    assert held_out.evaluation == "in_sample"


@pytest.mark.parametrize("name", BROKEN)
def test_each_finding_stops_the_fit_until_it_is_accepted_by_its_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, the name and no file; another name does not help; its own does and is recorded."""
    out = tmp_path / "c.json"
    command = ["fit-sts", name, "--out", str(out)]
    assert cli.run(command) == 2
    error = capsys.readouterr().err
    assert f"--accept {name}" in error.replace("\n", " ")
    assert cli.run([*command, "--accept", "refused_rows"]) == 2
    assert not out.exists()
    assert cli.run([*command, "--accept", name]) == 0
    assert f"{name}:" in capsys.readouterr().err
    found = read_calibration(out)
    assert found.accepted == (name,)
    assert next(f for f in found.findings if f.name == name).count > 0


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        (["--grid", "sglang"], "grid", "sglang"),
        (["--grid", "deepspec"], "grid", "deepspec"),
        (["--objective", "brier"], "objective", "brier"),
        (["--objective", "nll"], "objective", "nll"),
        (["--select", "paper"], "select", "paper"),
        (["--joint"], "joint", True),
    ],
)
def test_what_was_asked_for_is_done_and_recorded(options: list[str], field: str, value: object, tmp_path: Path) -> None:
    """Each option reaches the fit; on 2,000 rounds of true T 1.8 each of them finds about that."""
    assert cli.run(["fit-sts", "--out", str(tmp_path / "c.json"), *options]) == 0
    calibration = read_calibration(tmp_path / "c.json")
    assert getattr(calibration.fit, field) == value
    assert calibration.temperatures == pytest.approx((1.8, 1.8), abs=0.6)


@pytest.mark.parametrize("options", [["--objective", "brier"], ["--objective", "nll"], ["--joint"]])
def test_another_fitter_is_not_reproduced_with_what_it_does_not_do(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--grid sglang with another objective would be neither; nothing is ignored silently."""
    assert cli.run(["fit-sts", "--grid", "sglang", *options, "--out", str(tmp_path / "c.json")]) == 2
    assert "leave out --objective and --joint" in capsys.readouterr().err.replace("\n", " ")


def test_domains_get_fits_of_their_own_and_a_transfer_matrix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--by domain: one tuple a domain, judged on the other."""
    assert cli.run(["fit-sts", "domains", "--by", "domain", "--out", str(tmp_path / "c.json")]) == 0
    assert "fitted on the row, judged on the column" in " ".join(capsys.readouterr().out.split())
    found = read_calibration(tmp_path / "c.json")
    assert found.by_group["math"][0] == pytest.approx(1.8, abs=0.5)
    assert found.by_group["chat"][0] == pytest.approx(0.7, abs=0.3)
    assert found.transfer is not None
    assert found.transfer.groups == ("math", "chat")
