"""`gate`: pass, fail or leave open, by interval."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from dspark_calib_cli.console import RESULTS, print_json, print_table, say, warn
from dspark_calib_cli.options import (
    DEFAULT_CALIBRATION,
    DEFAULT_TRACE,
    AllowMixed,
    CalibrationOption,
    Config,
    Format,
    OutputFormat,
    Quiet,
    Seed,
    Traces,
)

if TYPE_CHECKING:
    from dspark_calib.decision.check import Check
    from dspark_calib.decision.gate import Gate

_MOST_REASONS = 20
_WIDEST_GROUP = 24
_STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow"}


class Groups(StrEnum):
    """What to judge beside the whole."""

    DOMAIN = "domain"
    DATASET = "dataset"


class Inconclusive(StrEnum):
    """What an open check counts as."""

    PASS = "pass"  # noqa: S105 - an outcome
    FAIL = "fail"


Limit = float | None


def gate(
    traces: Traces = None,
    calibration: CalibrationOption = None,
    max_ece: Annotated[Limit, typer.Option("--max-ece", metavar="X", help="Highest ECE at any position.")] = None,
    min_auroc: Annotated[Limit, typer.Option("--min-auroc", metavar="X", help="Lowest AUROC at any position.")] = None,
    max_bias: Annotated[
        Limit, typer.Option("--max-bias", metavar="X", help="Highest |predicted - observed| acceptance.")
    ] = None,
    max_brier_increase: Annotated[
        Limit, typer.Option("--max-brier-increase", metavar="X", help="Highest Brier score, calibrated minus raw.")
    ] = None,
    min_accepted_length: Annotated[
        Limit, typer.Option("--min-accepted-length", metavar="X", help="Lowest accepted length (drafts and bonus).")
    ] = None,
    max_regression: Annotated[
        Limit, typer.Option("--max-regression", metavar="X", help="Highest increase of the ECE over --baseline.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="Earlier trace folder, or its report.json.")
    ] = None,
    by: Annotated[Groups | None, typer.Option("--by", help="Judge every group beside the whole.")] = None,
    inconclusive: Annotated[
        Inconclusive | None,
        typer.Option("--inconclusive", help="What an open check counts as.", show_default="exit code 3"),
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit report.")] = None,
    github: Annotated[
        bool, typer.Option("--github/--no-github", help="Print GitHub annotations; append the step summary.")
    ] = False,
    allow_mixed: AllowMixed = False,
    seed: Seed = 0,
    output: Format = OutputFormat.TEXT,
    quiet: Quiet = False,
    config: Config = None,  # noqa: ARG001 - read by the app before the command runs
) -> None:
    """Hold a trace against limits: exit code 0 passed, 1 failed, 3 not enough rounds to tell.

    A check passes if its whole interval lies on the right side of the limit and fails if all of it lies on
    the wrong side. What is missing or undefined never passes.

    Example: dspark-calib gate trace --calibration calibration.json --max-ece 0.05 --junit gate.xml
    """
    from dspark_calib.decision.conditions import Conditions
    from dspark_calib.decision.gate_traces import GateInputs, gate_traces

    found = calibration or (DEFAULT_CALIBRATION if DEFAULT_CALIBRATION.is_file() else None)
    result = gate_traces(
        GateInputs(traces=traces or [DEFAULT_TRACE], calibration=found, baseline=baseline),
        Conditions(
            max_ece=max_ece,
            min_auroc=min_auroc,
            max_bias=max_bias,
            max_brier_increase=max_brier_increase,
            min_accepted_length=min_accepted_length,
            max_regression=max_regression,
        ),
        by=by.value if by else None,
        inconclusive=inconclusive.value if inconclusive else None,
        allow_mixed=allow_mixed,
        seed=seed,
    )
    _write_reports(result, junit, github=github, quiet=quiet)
    for message in result.warnings:
        warn(message, quiet=quiet)
    if output is OutputFormat.JSON:
        print_json(result.to_dict())
    else:
        _print(result)
    raise typer.Exit(result.exit_code)


def _write_reports(result: "Gate", junit: Path | None, *, github: bool, quiet: bool) -> None:
    from dspark_calib_reports.github import append_step_summary, render_annotations
    from dspark_calib_reports.junit import write_junit

    if junit is not None:
        write_junit(junit, result)
        say(f"wrote {junit}", quiet=quiet)
    if github:
        typer.echo(render_annotations(result), nl=False, err=True)
        if "GITHUB_STEP_SUMMARY" in os.environ:
            append_step_summary(Path(os.environ["GITHUB_STEP_SUMMARY"]), result)


def _print(result: "Gate") -> None:
    table = Table(title=f"gate: {result.view} confidences, {result.rounds} rounds, {result.prompts} prompts")
    for column in ("condition", "group", "position", "value", "interval", "limit", "outcome"):
        numeric = column in {"position", "value", "limit"}
        table.add_column(
            column,
            justify="right" if numeric else "left",
            no_wrap=column in {"group", "interval", "outcome"},
            max_width=_WIDEST_GROUP if column == "group" else None,
        )
    for check in result.checks:
        table.add_row(*_cells(result, check))
    print_table(table)
    for check in result.worst(_MOST_REASONS):
        RESULTS.print(f"{check.name}: {check.reason}", markup=False)
    for remark in result.remarks:
        RESULTS.print(remark, markup=False)
    counts = ", ".join(f"{count} {outcome.value}" for outcome, count in result.counts.items())
    RESULTS.print(f"{counts} of {len(result.checks)} checks", markup=False)
    RESULTS.print(f"outcome: {result.outcome.value}", style=_STYLES[result.outcome.value])


def _cells(result: "Gate", check: "Check") -> tuple[str, ...]:
    counted = result.counted_as(check).value
    outcome = check.outcome.value if counted == check.outcome.value else f"{check.outcome.value} → {counted}"
    return (
        check.condition,
        escape(check.group),
        "" if check.position is None else str(check.position),
        "–" if check.value is None else f"{check.value:.4f}",
        "–" if check.low is None or check.high is None else f"{check.low:.4f}…{check.high:.4f}",
        f"{check.limit:g}",
        f"[{_STYLES[counted]}]{outcome}[/]",
    )
