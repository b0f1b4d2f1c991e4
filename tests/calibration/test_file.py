"""The calibration file: what engines load, what is refused and how."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_calib.calibration import evaluate, fit_calibration, read_calibration, write_calibration
from dspark_calib.calibration.file import Calibration
from dspark_calib.errors import CalibrationFileError, OutputExists
from dspark_calib.trace import Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def small_trace(seed: int = 0, prompts: int = 30) -> Trace:
    """A trace of two positions."""
    rounds = synthetic_rounds(
        np.random.default_rng(seed), prompts=prompts, rounds_per_prompt=40, temperatures=[1.8, 1.5]
    )
    return Trace.of(rounds, synthetic_provenance(2))


@pytest.fixture(scope="module")
def fitted() -> Calibration:
    """A calibration with everything in it."""
    return fit_calibration(small_trace(), by="domain")


def test_file_round_trips(fitted: Calibration, tmp_path: Path) -> None:
    """Written and read again it is the same record, and an existing file is not replaced unasked."""
    path = write_calibration(tmp_path / "calibration.json", fitted)
    assert read_calibration(path) == fitted
    with pytest.raises(OutputExists, match="--overwrite"):
        write_calibration(path, fitted)
    assert not list(tmp_path.glob(".*"))


def test_file_loads_with_sglangs_struct(fitted: Calibration) -> None:
    """temperatures > 0 of length γ, dataset text, num_samples whole, both ECE lists of length γ, no NaN anywhere."""
    body = fitted.to_dict()
    json.dumps(body, allow_nan=False)
    assert set(body) == {"temperatures", "dataset", "num_samples", "ece_before", "ece_after", "dspark_calib"}
    assert len(body["temperatures"]) == len(body["ece_before"]) == len(body["ece_after"]) == 2
    assert all(isinstance(t, float) and t > 0 for t in body["temperatures"])
    assert isinstance(body["dataset"], str)
    assert isinstance(body["num_samples"], int)


def test_undefined_ece_leaves_both_keys_out() -> None:
    """A position nobody reached has no ECE; SGLang takes neither null nor NaN, so neither key is written."""
    trace = small_trace()
    rounds = trace.read()
    one = np.ones(len(rounds), np.int16)
    cut = replace(rounds, observed=one, accepted=np.minimum(rounds.accepted, one))
    body = fit_calibration(Trace.of(cut, trace.provenance), accept=("all",)).to_dict()
    assert "ece_before" not in body
    assert "ece_after" not in body


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "temperatures"),
        ({"temperatures": []}, "temperatures"),
        ({"temperatures": "1.0"}, "temperatures"),
        ({"temperatures": [1.0, 0.0]}, "position 2"),
        ({"temperatures": [1.0, -1242]}, "position 2"),
        ({"temperatures": [True, 1.0]}, "position 1"),
        ({"temperatures": [1.0, None]}, "position 2"),
        ({"temperatures": [1.0], "num_samples": -3}, "num_samples"),
        ({"temperatures": [1.0], "dataset": 3}, "dataset"),
        ({"temperatures": [1.0], "ece_after": [0.1, 0.2]}, "ece_after"),
        ({"temperatures": [1.0], "dspark_calib": {"schema": "other/9"}}, "schema"),
        ({"temperatures": [1.0], "dspark_calib": {}}, "dspark_calib"),
        ({"temperatures": [1.0], "dspark_calib": 3}, "dspark_calib"),
    ],
)
def test_broken_files_are_refused_by_field(body: dict[str, Any], named: str, tmp_path: Path) -> None:
    """One line with the file and the field."""
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(body))
    with pytest.raises(CalibrationFileError, match=named) as error:
        read_calibration(path)
    assert "broken.json" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[1.0]", '{"temperatures": [NaN]}', '{"temperatures": [1e999]}'])
def test_no_json_and_no_numbers_are_refused(text: str, tmp_path: Path) -> None:
    """Truncated files, lists, NaN and Infinity."""
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(CalibrationFileError):
        read_calibration(path)


def test_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    """The message names the command."""
    with pytest.raises(CalibrationFileError, match="fit-sts"):
        read_calibration(tmp_path / "none.json")


def test_files_of_other_fitters_are_read() -> None:
    """SGLang's five keys, TensorRT-LLM's second list and DeepSpec's bare NaN."""
    sglang = {
        "temperatures": [1.5, 1.2],
        "dataset": "a",
        "num_samples": 9,
        "ece_before": [0.1, 0.2],
        "ece_after": [0.0, 0.1],
    }
    assert Calibration.from_dict(sglang, "x").ece_before == (0.1, 0.2)
    assert Calibration.from_dict({"temperatures": [1.5], "sts_temperatures": [1.5]}, "x").temperatures == (1.5,)
    assert Calibration.from_dict(sglang | {"ece_after": [0.1, float("nan")]}, "x").ece_after is None


def test_calibration_of_another_block_size_is_refused(fitted: Calibration) -> None:
    """Two temperatures do not fit γ = 3."""
    rounds = synthetic_rounds(np.random.default_rng(0), prompts=5, rounds_per_prompt=5, temperatures=[1.0] * 3)
    with pytest.raises(CalibrationFileError, match="γ = 3"):
        evaluate(Trace.of(rounds, synthetic_provenance(3)), fitted)


def test_evaluation_names_how_it_was_had(fitted: Calibration) -> None:
    """Out of fold on its own trace, independent on another, in-sample without a hold-out."""
    assert evaluate(small_trace(), fitted, draws=50).evaluation == "out_of_fold"
    assert evaluate(small_trace(seed=1), fitted, draws=50).evaluation == "independent"
    in_sample = fit_calibration(small_trace(), holdout=0.0)
    assert in_sample.held_out is not None
    assert in_sample.held_out.evaluation == "in_sample"
    assert evaluate(small_trace(), in_sample, draws=50).evaluation == "in_sample"


def test_out_of_fold_scores_use_temperatures_fitted_without_the_prompt(fitted: Calibration) -> None:
    """The held-out ECE equals that of arrays where each prompt gets the other fold's temperatures."""
    from dspark_calib.metrics import compute_ece
    from dspark_calib.trace import assign_folds

    trace = small_trace()
    rounds = trace.read()
    cross = fitted.cross_fit
    assert cross is not None
    keys = [("synthetic", name) for name in rounds.prompt_id.names]
    fold = assign_folds(keys, cross.folds, cross.seeds[0])[rounds.prompt_id.codes]
    t = np.array(cross.temperatures[0])[fold]
    a = np.cumprod(1 / (1 + np.exp(-rounds.confidence_logits.astype(float) / t)), axis=1)
    found = evaluate(trace, fitted, draws=50).groups[0].calibrated
    assert found is not None
    for k in range(2):
        assert found.cumulative[k].ece.value == pytest.approx(compute_ece(a[:, k], rounds.accepted > k), abs=1e-12)


def test_baselines_stand_on_the_same_held_out_rounds(fitted: Calibration) -> None:
    """Identity and STS of the baseline table equal the before and after of the main table."""
    table = {b.name: b for b in fitted.baselines}
    assert set(table) == {"identity", "sts", "global", "independent", "platt", "isotonic", "constant"}
    assert fitted.held_out is not None
    for k in range(2):
        assert table["identity"].ece[k] == pytest.approx(fitted.held_out.ece_before[k].value, abs=1e-12)
        assert table["sts"].ece[k] == pytest.approx(fitted.held_out.ece_after[k].value, abs=1e-12)
    # True temperatures 1.8 and 1.5: every way that fits beats none, and a constant has the worst Brier score.
    assert max(table[n].ece[0] for n in ("sts", "global", "independent", "platt")) < table["identity"].ece[0]
    assert table["constant"].brier[0] > max(table[n].brier[0] for n in ("sts", "platt", "isotonic"))


def test_transfer_matrix_shows_what_other_traffic_costs() -> None:
    """Domains with true T 2.2 and 0.6: fitted on one, judged on the other is worse than at home."""
    from dspark_calib.trace import concat_rounds

    rng = np.random.default_rng(0)
    parts = [
        synthetic_rounds(
            rng, prompts=30, rounds_per_prompt=40, temperatures=[t], first_prompt=30 * i, domain=name, dataset=name
        )
        for i, (name, t) in enumerate((("hot", 2.2), ("cold", 0.6)))
    ]
    found = fit_calibration(Trace.of(concat_rounds(parts), synthetic_provenance(1)), by="domain")
    assert found.by_group["hot"][0] == pytest.approx(2.2, abs=0.7)
    assert found.by_group["cold"][0] == pytest.approx(0.6, abs=0.2)
    assert found.transfer is not None
    matrix = np.array(found.transfer.mean_ece)
    assert matrix[0, 0] < matrix[1, 0]
    assert matrix[1, 1] < matrix[0, 1]


def test_joint_refinement_never_raises_the_fitted_mean_ece() -> None:
    """Coordinate descent moves only downhill on the rows it fits."""
    from dspark_calib.calibration import FitRows
    from dspark_calib.calibration.fitting.procedure import Procedure
    from dspark_calib.metrics.rows.judged import JudgedTrace

    rows = FitRows(JudgedTrace(small_trace(3)), "cumulative")
    plain, joint = Procedure(select="paper")(rows), Procedure(select="paper", joint=True)(rows)
    sample = rows.sample()
    means = [np.mean(sample.ece(sample.predictions_at(fit.temperatures), 20)) for fit in (plain, joint)]
    assert means[1] <= means[0] + 1e-12


def test_joint_refinement_leaves_a_bad_start_and_keeps_what_may_not_move() -> None:
    """From T = 1 with true 1.8 and 1.5 the first position moves towards the truth; the second, held back, does not."""
    from dspark_calib.calibration import FitRows
    from dspark_calib.calibration.fitting.joint import refine_jointly
    from dspark_calib.metrics.rows.judged import JudgedTrace

    rows = FitRows(JudgedTrace(small_trace(3)), "cumulative")
    sample, start = rows.sample(), (1.0, 1.0)
    found = refine_jointly(sample, rows.hashes, start, bins=20, seed=0, movable=(True, False))
    assert 1.2 < found[0] < 3.0
    assert found[1] == 1.0
    means = [np.mean(sample.ece(sample.predictions_at(t), 20)) for t in (start, found)]
    assert means[1] < means[0]


def test_record_of_a_joint_fit_is_that_of_its_temperatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the refinement moved, objectives are those at the new temperatures and intervals hold them."""
    from dspark_calib.calibration import FitRows
    from dspark_calib.calibration.fitting.procedure import Procedure
    from dspark_calib.metrics import compute_ece
    from dspark_calib.metrics.rows.judged import JudgedTrace
    from dspark_calib.survival import prefix_survival

    moved = (2.5, 0.9)
    monkeypatch.setattr("dspark_calib.calibration.fitting.procedure.refine_jointly", lambda *_, **__: moved)
    trace = small_trace(3)
    rounds = trace.read()
    fit = Procedure(select="paper", joint=True)(FitRows(JudgedTrace(trace), "cumulative"))
    assert fit.temperatures == moved
    for k, position in enumerate(fit.positions):
        y = rounds.accepted > k
        earlier = list(moved[:k])
        for t, value in ((1.0, position.objective_before), (moved[k], position.objective_after)):
            a = prefix_survival(rounds.confidence_logits[:, : k + 1], [*earlier, t])[:, k]
            assert value == pytest.approx(compute_ece(a, y), abs=1e-12)
        assert position.interval is not None
        assert position.interval[0] <= moved[k] <= position.interval[1]


def test_cross_fits_repeat_with_other_folds(fitted: Calibration) -> None:
    """Five assignments of prompts to folds, each with its own temperatures and held-out ECE."""
    cross = fitted.cross_fit
    assert cross is not None
    assert len(cross.seeds) == len(set(cross.seeds)) == 5
    assert len(cross.ece_after) == 5
    low, high = cross.spread(1)
    assert low <= fitted.temperatures[0] <= high
