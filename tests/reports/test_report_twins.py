"""The twins of the page: JSON by its schema, Markdown within its size, figures as files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from example_record import example_report, without_calibration

from dspark_calib.metrics.estimate import Estimate
from dspark_calib.summary.json_form import load_schema, render_json, report_to_json
from dspark_calib.summary.schema import FILE, render_schema
from dspark_calib_reports.chapters import report_sections
from dspark_calib_reports.figure_files import render_fragment, write_figures
from dspark_calib_reports.markdown import escape, render_markdown


@pytest.mark.parametrize("make", [example_report, lambda: without_calibration(example_report())])
def test_json_follows_its_schema(make: Any) -> None:
    """Every key is described, no other key is there, with and without a calibration."""
    jsonschema.Draft202012Validator(load_schema()).validate(report_to_json(make()))


def test_schema_file_is_that_of_the_records() -> None:
    """The schema file is what the records say (python -m dspark_calib.summary.schema writes it anew)."""
    assert FILE.read_text(encoding="utf-8") == render_schema()


def test_json_has_the_frozen_layout() -> None:
    """Groups, raw, calibrated and acceptance stand where other tools look for them."""
    data = json.loads(render_json(example_report()))
    assert data["schema"] == "dspark-calib/report/1"
    assert data["evaluation"] == "out_of_fold"
    first = data["groups"][0]
    assert first["name"] == "all"
    row = first["raw"]["positions"][0]
    assert {"position", "n", "ece", "ece_se", "ece_interval", "auroc", "brier", "predicted_mean"} <= row.keys()
    assert row["position"] == 1
    assert first["calibrated"]["positions"][0]["observed_mean"] == 0.8
    assert len(first["acceptance"]["conditional"]) == 7
    assert first["acceptance"]["accepted_length"] == pytest.approx(3.14, abs=0.01)


def test_json_is_strict_and_deterministic() -> None:
    """NaN and infinity become null, and the same report gives the same bytes."""
    report = example_report()
    whole = report.groups[0]
    broken = replace(
        whole.raw.positions[0], ece=Estimate(value=float("nan"), se=float("inf")), log_loss=Estimate(value=float("nan"))
    )
    raw = replace(whole.raw, positions=(broken, *whole.raw.positions[1:]))
    text = render_json(replace(report, groups=(replace(whole, raw=raw),)))
    row = json.loads(text, parse_constant=pytest.fail)["groups"][0]["raw"]["positions"][0]
    assert (row["ece"], row["ece_se"], row["log_loss"]) == (None, None, None)
    assert render_json(report) == render_json(example_report())


def test_absent_calibration_is_null() -> None:
    """Without a calibration the key is there and null."""
    data = report_to_json(without_calibration(example_report()))
    assert data["evaluation"] is None
    assert all(group["calibrated"] is None for group in data["groups"])


@pytest.mark.parametrize(
    "names", [("math",), tuple(f"{'n' * 290}{i:03d}" for i in range(40)), ("| a |\n<img src=x>", "`b`")]
)
def test_markdown_stays_under_60_kb(names: tuple[str, ...]) -> None:
    """Whatever the trace holds, the comment fits a pull request."""
    text = render_markdown(example_report(gamma=16, names=names))
    assert len(text.encode()) <= 60_000
    assert text.startswith("## dspark-calib: Ship these temperatures")
    assert "<img" not in text


def test_markdown_says_what_it_left_out() -> None:
    """Tables that would not fit are counted."""
    text = render_markdown(example_report(gamma=16, names=tuple(f"{'名' * 48}{i:03d}" for i in range(400))))
    assert len(text.encode()) <= 60_000
    assert "left out to stay under 60 KB" in text or "more rows in the JSON" in text


def test_markdown_escapes_names() -> None:
    """Bars, emphasis and markup in a name are text."""
    assert escape("a|b *c* <d> `e`\nf") == "a\\|b \\*c\\* &lt;d&gt; \\`e\\` f"


def test_tables_of_markdown_are_rectangular() -> None:
    """Each row of each table has as many cells as its header."""
    tables = [block for block in render_markdown(example_report()).split("\n\n") if block.startswith("| ")]
    assert len(tables) > 5
    for table in tables:
        widths = {line.replace("\\|", "").count("|") for line in table.splitlines()}
        assert len(widths) == 1


def test_fragments_are_figures_without_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each figure is a small fragment; without kaleido there are no images, and the reason is given."""
    monkeypatch.setitem(__import__("sys").modules, "kaleido", None)
    files = write_figures(example_report(), tmp_path)
    assert len(files.fragments) == len(list(tmp_path.glob("*.html"))) > 25
    assert files.images == ()
    assert "kaleido is not installed" in (files.no_images or "")
    assert all(path.stat().st_size < 200_000 for path in tmp_path.glob("*.html"))


def test_fragment_escapes_names() -> None:
    """A name in a fragment cannot end its script."""
    sections = report_sections(example_report(names=("</script><b>", "x")))
    section = next(s for s in sections if s.key == "groups")
    fragment = render_fragment(section, section.panels[0])
    assert fragment.count("</script>") == 1


def test_images_need_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where kaleido finds no browser the fragments stand and the reason is said."""
    pytest.importorskip("kaleido")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "no-browser"))
    files = write_figures(without_calibration(example_report(gamma=1, names=())), tmp_path)
    assert files.fragments
    assert files.images == ()
    assert "kaleido" in (files.no_images or "")
