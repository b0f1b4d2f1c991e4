"""`dspark-calib report` end to end on small traces: files, refusals, twins, determinism."""

import json
import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from dspark_calib.calibration import Calibration, fit_calibration, write_calibration
from dspark_calib.metrics import compute_ece
from dspark_calib.summary.json_form import load_schema
from dspark_calib.survival import prefix_labels, prefix_survival
from dspark_calib.trace import Checkpoint, Labels, Rounds, Trace, concat_rounds, open_trace, write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds
from dspark_calib_cli.app import run

TRUE_T = [1.6, 1.4, 1.2]
DRAFTER = Checkpoint(name="drafter", content_hash="sha256:d1")


def rounds_of(seed: int, domain: str | None = "math", prompts: int = 40, mean: float = 1.7) -> Rounds:
    """Overconfident rounds of one domain."""
    rounds = synthetic_rounds(
        np.random.default_rng(seed),
        prompts=prompts,
        rounds_per_prompt=30,
        temperatures=TRUE_T,
        logit_mean=mean,
        first_prompt=1000 * seed,
        dataset=domain or "set",
    )
    return replace(rounds, domain=Labels.constant(domain, len(rounds)))


def save(folder: Path, *parts: Rounds, drafter: Checkpoint = DRAFTER) -> Trace:
    """Write a trace of a named pair."""
    provenance = replace(
        synthetic_provenance(parts[0].gamma),
        drafter=drafter,
        target=Checkpoint(name="target", content_hash="sha256:t1"),
    )
    return write_trace(folder, provenance, parts)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace of two domains, its calibration, another week and another drafter."""
    folder = tmp_path_factory.mktemp("report")
    trace = save(folder / "trace", rounds_of(1), rounds_of(2, "chat", mean=0.6))
    write_calibration(folder / "calibration.json", fit_calibration(trace))
    save(folder / "last-week", rounds_of(3), rounds_of(4, "chat", mean=0.6))
    save(folder / "ngram", rounds_of(5, mean=0.2), drafter=Checkpoint(name="n-gram", content_hash="sha256:d2"))
    return folder


def report(workplace: Path, *arguments: str) -> int:
    """Run the command in the folder."""
    before = Path.cwd()
    os.chdir(workplace)
    try:
        return run(["report", *arguments, "--quiet"])
    finally:
        os.chdir(before)


def test_report_json_has_the_numbers_of_the_rounds(workplace: Path) -> None:
    """ECE, means and conditional acceptance in the file equal those computed from the rounds by hand."""
    assert report(workplace, "--json", "--out", "numbers") == 0
    data = json.loads((workplace / "numbers" / "report.json").read_text())
    jsonschema.Draft202012Validator(load_schema()).validate(data)
    rounds = open_trace(workplace / "trace").read()
    survival, labels = prefix_survival(rounds.confidence_logits), prefix_labels(rounds.accepted, 3)
    whole = data["groups"][0]
    assert [group["name"] for group in data["groups"]] == ["all", "math", "chat"]
    assert data["evaluation"] == "out_of_fold"
    for k, row in enumerate(whole["raw"]["positions"]):
        assert row["ece"] == pytest.approx(compute_ece(survival[:, k], labels[:, k]), abs=1e-12)
        assert row["predicted_mean"] == pytest.approx(survival[:, k].mean(), abs=1e-6)
        assert row["observed_mean"] == pytest.approx(labels[:, k].mean(), abs=1e-12)
    before = np.concatenate([[len(rounds)], labels.sum(axis=0)[:-1]])
    assert whole["acceptance"]["conditional"] == pytest.approx(labels.sum(axis=0) / before)
    assert whole["acceptance"]["accepted_length"] == pytest.approx(rounds.accepted.mean() + 1)
    assert sum(whole["acceptance"]["lengths"]) == len(rounds) == whole["rounds"]
    assert whole["sweep"]["raw"][0]["accepted"] == pytest.approx(rounds.accepted.mean() + 1)


def test_calibration_lowers_the_held_out_error(workplace: Path) -> None:
    """On traffic that needs temperatures the verdict is to ship them."""
    data = json.loads((workplace / "numbers" / "report.json").read_text())
    whole = data["groups"][0]
    assert data["verdict"]["outcome"] == "ship"
    assert whole["calibrated"]["mean_ece"] < whole["raw"]["mean_ece"] / 2
    assert whole["change"]["mean_ece_interval"][1] < 0
    assert {s["quantity"] for s in data["slices"]} == {"confidence_1", "prompt_length", "depth"}


def test_html_is_the_default_and_repeats_byte_for_byte(workplace: Path) -> None:
    """Two runs give the same page."""
    assert report(workplace, "--out", "first") == 0
    assert report(workplace, "--html", "--out", "second") == 0
    pages = [(workplace / name / "report.html").read_bytes() for name in ("first", "second")]
    assert pages[0] == pages[1]
    assert b"Ship these temperatures" in pages[0]
    assert sorted(p.name for p in (workplace / "first").iterdir()) == ["report.html"]


def test_other_drafters_are_laid_beside(workplace: Path) -> None:
    """A trace of another drafter adds its acceptance and nothing to the measures."""
    assert report(workplace, "trace", "ngram", "--json", "--markdown", "--out", "beside") == 0
    data = json.loads((workplace / "beside" / "report.json").read_text())
    assert [drafter["name"] for drafter in data["drafters"]] == ["drafter", "n-gram"]
    assert data["groups"][0]["rounds"] == 2400
    assert "n-gram" in (workplace / "beside" / "report.md").read_text()


def test_compare_with_a_trace_and_with_its_report(workplace: Path) -> None:
    """OLD may be the trace or its JSON; the differences agree, the paired one knows its pairs."""
    assert report(workplace, "last-week", "--json", "--out", "old") == 0
    assert report(workplace, "--compare", "last-week", "--json", "--out", "by-trace") == 0
    assert report(workplace, "--compare", "old/report.json", "--json", "--html", "--out", "by-json") == 0
    by_trace, by_json = (
        json.loads((workplace / name / "report.json").read_text())["comparison"] for name in ("by-trace", "by-json")
    )
    key = {(r["group"], r["measure"], r["position"]): r["difference"] for r in by_trace["rows"]}
    assert by_trace["paired"]
    assert not by_json["paired"]
    assert len(key) == len(by_json["rows"]) > 30
    for row in by_json["rows"]:
        assert row["difference"] == pytest.approx(key[row["group"], row["measure"], row["position"]], abs=1e-9)
    page = (workplace / "by-json" / "report.html").read_text()
    assert page.index("Against the old one") < page.index("What the temperatures do")


def test_calibration_of_another_checkpoint_is_refused(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both hashes are named, exit code 2, nothing is written."""
    assert report(workplace, "ngram", "--calibration", "calibration.json", "--out", "refused") == 2
    message = capsys.readouterr().err
    assert "sha256:d1" in message
    assert "sha256:d2" in message
    assert not (workplace / "refused").exists()


def test_existing_output_is_refused_without_overwrite(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report that stands is kept unless --overwrite says so."""
    assert report(workplace, "--json", "--out", "kept") == 0
    assert report(workplace, "--json", "--out", "kept") == 2
    assert "kept/report.json exists already" in capsys.readouterr().err.replace("\n", "")
    assert report(workplace, "--json", "--out", "kept", "--overwrite") == 0
    assert report(workplace, "--html", "--out", "kept") == 0


def test_format_json_names_the_files(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """stdout is one JSON object."""
    assert report(workplace, "--json", "--out", "named", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"outcome": "ship", "files": ["named/report.json"]}


def test_counters_are_shown_alone_and_beside_a_trace(workplace: Path, tmp_path: Path) -> None:
    """acceptance.json adds a drafter; alone it makes a page without confidences."""
    from dspark_calib.trace.readers.acceptance import AcceptanceCounts, write_acceptance
    from dspark_calib.trace.readers.imported import RowAccount

    account = RowAccount(read=1, kept=1, refused=())
    counts = AcceptanceCounts(
        source="import vllm-metrics", rounds=100, verified=(100, 100, 100), accepted=(60, 30, 10), account=account
    )
    (tmp_path / "vllm").mkdir()
    write_acceptance(tmp_path / "vllm" / "acceptance.json", counts)
    assert report(workplace, "trace", str(tmp_path / "vllm"), "--json", "--out", "with-counters") == 0
    data = json.loads((workplace / "with-counters" / "report.json").read_text())
    assert data["drafters"][1]["source"] == "counters"
    assert data["drafters"][1]["acceptance"]["conditional"] == pytest.approx([0.6, 0.5, 1 / 3])
    assert report(workplace, str(tmp_path / "vllm" / "acceptance.json"), "--html", "--json", "--out", "counters") == 0
    data = json.loads((workplace / "counters" / "report.json").read_text())
    assert (data["verdict"]["outcome"], data["groups"]) == ("no_confidence", [])


def odd_rounds() -> dict[str, list[Rounds]]:
    """Traces that lack something."""
    usual = rounds_of(1, prompts=10)
    n = len(usual)
    hostile = ("n" * 300, "<script>alert(1)</script>", "| a | *b*", "\x1b[31m")
    return {
        "nobody reached the last position": [replace(usual, accepted=np.minimum(usual.accepted, 1).astype(np.int16))],
        "one class": [replace(usual, accepted=np.full(n, 3, np.int16))],
        "nothing accepted": [replace(usual, accepted=np.zeros(n, np.int16))],
        "one prompt": [rounds_of(1, prompts=1)],
        "one bin": [replace(usual, confidence_logits=np.full((n, 3), 20.0, np.float32))],
        "no domains": [rounds_of(1, None)],
        "no prompt ids": [replace(usual, prompt_id=Labels.constant(None, n))],
        "no anchors": [replace(usual, anchor=np.full(n, -1, np.int32), ending=Labels.constant("unknown", n))],
        "forty data sets": [rounds_of(i, f"set {i}", prompts=1) for i in range(40)],
        "hostile names": [
            replace(rounds_of(i, prompts=10), domain=Labels.constant(w, n)) for i, w in enumerate(hostile)
        ],
        "one round": [usual.take(slice(0, 1))],
        "last position unobserved": [
            replace(usual, accepted=np.minimum(usual.accepted, 2).astype(np.int16), observed=np.full(n, 2, np.int16))
        ],
        "cut by a scheduler": [
            replace(
                usual,
                accepted=np.minimum(usual.accepted, np.arange(n) % 3 + 1).astype(np.int16),
                observed=(np.arange(n) % 3 + 1).astype(np.int16),
                verified=(np.arange(n) % 3 + 1).astype(np.int16),
            )
        ],
        "cut before the last position": [cut_at(usual, 2)],
        "cut, one prompt": [cut_at(rounds_of(1, prompts=1), 1)],
        "cut, nothing accepted": [cut_at(replace(usual, accepted=np.zeros(n, np.int16)), 2)],
        "cut, two groups": [cut_at(usual, 2), cut_at(rounds_of(2, "chat", prompts=1), 1)],
    }


def cut_at(rounds: Rounds, sent: int) -> Rounds:
    """Return the rounds as a scheduler leaves them that sends so many drafts of each block."""
    lengths = np.full(len(rounds), sent, np.int16)
    return replace(rounds, accepted=np.minimum(rounds.accepted, lengths), observed=lengths, verified=lengths)


CALIBRATED = (
    "one class",
    "one prompt",
    "hostile names",
    "last position unobserved",
    "cut by a scheduler",
    "cut, one prompt",
    "cut, two groups",
)


@pytest.mark.parametrize(
    ("name", "calibrated"), [*((name, False) for name in odd_rounds()), *((name, True) for name in CALIBRATED)]
)
def test_poor_traces_still_make_a_true_report(name: str, calibrated: bool, tmp_path: Path) -> None:
    """Whatever a trace lacks, every twin is written, valid, and free of NaN and of the names' markup."""
    trace = save(tmp_path / "trace", concat_rounds(odd_rounds()[name]))
    if calibrated:
        fitted = Calibration(temperatures=(1.5, 1.2, 1.0), drafter=trace.provenance.drafter)
        write_calibration(tmp_path / "calibration.json", fitted)
    assert report(tmp_path, "--html", "--json", "--markdown") == 0
    text = (tmp_path / "report" / "report.json").read_text()
    data = json.loads(text, parse_constant=pytest.fail)
    jsonschema.Draft202012Validator(load_schema()).validate(data)
    assert (data["evaluation"] is not None) == calibrated
    page = (tmp_path / "report" / "report.html").read_text()
    assert len(page) < 7_000_000
    assert "<script>alert" not in page
    assert ">None<" not in page
    assert len((tmp_path / "report" / "report.md").read_bytes()) <= 60_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "there is no such trace"),
        (("trace", "--compare", "calibration.json"), "no 'dspark-calib/report/1'"),
        (("trace", "--calibration", "nowhere.json"), "there is no such file"),
        (("trace", "trace"), "hold the same rounds"),
    ],
)
def test_wrong_inputs_are_one_clear_line(
    workplace: Path, arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, one line that says what and where, no traceback, no file."""
    assert report(workplace, *arguments, "--out", "wrong") == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert not (workplace / "wrong").exists()


def every_anchor(prompts: int = 12, length: int = 30) -> Rounds:
    """Rounds at every anchor of responses that end by EOS, as `collect --anchors all` writes them."""
    rounds = synthetic_rounds(np.random.default_rng(9), prompts=prompts, rounds_per_prompt=length, temperatures=TRUE_T)
    left = (rounds.prompt_length + length - rounds.anchor).astype(np.int16)
    accepted = np.minimum(rounds.accepted, left)
    observed = np.where((accepted == left) & (left < 3), left, 3)
    response = np.full(len(rounds), length + 1, np.int32)
    return replace(rounds, accepted=accepted, observed=observed.astype(np.int16), response_length=response)


def test_speed_curve_adds_the_replay(tmp_path: Path) -> None:
    """With --sps the page shows throughput at four loads and says what to run."""
    provenance = replace(synthetic_provenance(3), anchor_policy="all")
    write_trace(tmp_path / "trace", provenance, [every_anchor()])
    (tmp_path / "sps.json").write_text(json.dumps([[b, 8 + 0.02 * b] for b in (1, 16, 64, 256, 1100)]))
    assert report(tmp_path, "--sps", "sps.json", "--json", "--html") == 0
    data = json.loads((tmp_path / "report" / "report.json").read_text())
    jsonschema.Draft202012Validator(load_schema()).validate(data)
    assert {run["concurrency"] for run in data["throughput"]} == {1, 8, 64, 256}
    assert [advice["concurrency"] for advice in data["advice"]] == [1, 8, 64, 256]
    fixed = next(r for r in data["throughput"] if r["policy"] == "fixed" and r["concurrency"] == 1)
    assert fixed["budget"] == pytest.approx(4.0)
    page = (tmp_path / "report" / "report.html").read_text()
    assert "What it is worth" in page
    assert "Fastest at 256 requests" in page


def test_report_help_has_an_example_that_runs(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The example under --help is a command line that works."""
    assert run(["report", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "dspark-calib report trace --html --calibration calibration.json" in words
    assert report(workplace, "trace", "--html", "--calibration", "calibration.json", "--out", "example") == 0
