"""`drift`: has live traffic left what the temperatures were fitted on?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from dspark_calib_cli.console import RESULTS, print_json, print_table, say, warn
from dspark_calib_cli.options import DEFAULT_CALIBRATION, CalibrationOption, Config, Format, OutputFormat, Quiet, Seed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dspark_calib.calibration import Calibration
    from dspark_calib.decision.drift import Drift
    from dspark_calib.decision.live_drift import LiveWindow
    from dspark_calib.metrics import Estimate
    from dspark_calib.trace import Trace

_MOVED = ("", "PSI (chance)", "logit distance", "acceptance given prefix", "bias")
_NOW = ("", "acceptance given prefix", "bias", "ECE", "AUROC")
_STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow"}
_WORDS = {"pass": "no drift", "fail": "drifted", "inconclusive": "inconclusive"}


def drift(
    reference: Annotated[Path, typer.Argument(metavar="REFERENCE", help="Trace the temperatures were fitted on.")],
    trace: Annotated[Path | None, typer.Argument(metavar="[TRACE]", help="Trace of the traffic now.")] = None,
    calibration: CalibrationOption = None,
    follow: Annotated[
        Path | None,
        typer.Option("--follow", metavar="FILE", help="Watch a growing JSONL of rounds; - reads stdin to its end."),
    ] = None,
    seed: Seed = 0,
    output: Format = OutputFormat.TEXT,
    quiet: Quiet = False,
    config: Config = None,  # noqa: ARG001 - read by the app before the command runs
) -> None:
    """Compare traffic with a reference: exit code 0 no drift, 1 drifted, 3 too little traffic to tell.

    Example: dspark-calib drift trace live-trace --calibration calibration.json
    """
    from dspark_calib.calibration import read_calibration
    from dspark_calib.errors import ConfigError
    from dspark_calib.trace import open_trace

    found = calibration or (DEFAULT_CALIBRATION if DEFAULT_CALIBRATION.is_file() else None)
    fitted = None if found is None else read_calibration(found)
    if (trace is None) == (follow is None):
        raise ConfigError("drift needs either a TRACE or --follow FILE, beside the REFERENCE")
    if follow is not None:
        _follow(open_trace(reference), follow, fitted, output, quiet=quiet)
        return
    from dspark_calib.decision.drift import compute_drift

    assert trace is not None  # noqa: S101 - one of the two was given
    result = compute_drift(open_trace(reference), open_trace(trace), fitted, seed=seed)
    for message in result.warnings:
        warn(message, quiet=quiet)
    if output is OutputFormat.JSON:
        print_json(result.to_dict())
    else:
        _print(result)
    raise typer.Exit(result.exit_code)


def _follow(reference: "Trace", file: Path, fitted: "Calibration | None", output: OutputFormat, *, quiet: bool) -> None:
    """Print a line a window until the alarm, the end of stdin, or Ctrl-C."""
    from dspark_calib.calibration.file import check_fits_trace
    from dspark_calib.decision.live_drift import watch_drift
    from dspark_calib.trace.readers.live_rounds import follow_lines, iter_live_rounds

    if fitted is not None:
        check_fits_trace(fitted, reference.gamma, reference.name)
    temperatures = None if fitted is None else fitted.temperatures
    lines: Iterable[str] = sys.stdin if str(file) == "-" else follow_lines(file)
    warned = False
    try:
        for window in watch_drift(reference, iter_live_rounds(lines, str(file)), temperatures):
            if not (window.by_prompt or warned):
                warned = True
                warn("rounds name no prompt: blocks of 100 stand in, so chance may look like drift", quiet=quiet)
            _print_window(window, output)
            if window.alarm:
                raise typer.Exit(1)
    except KeyboardInterrupt:
        say("stopped; no drift was shown so far", quiet=quiet)


def _print_window(window: "LiveWindow", output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        typer.echo(window.to_json_line())
        return
    state = f"DRIFTED: {window.leading}" if window.alarm else "no drift shown"
    typer.echo(
        f"{window.rounds} rounds, {window.prompts} prompts: {state} "
        f"(evidence {window.e_value:.3g} of {window.threshold:.0f}; {window.acceptance:.2f} drafts accepted a round)"
    )


def _print(result: "Drift") -> None:
    print_table(_moved_table(result))
    print_table(_now_table(result))
    for test in result.tests:
        verdict = "moved" if test.moved else "not shown to move"
        RESULTS.print(f"{test.name}: {verdict} (p = {test.p_value:.3g}, by permutation of prompts)", markup=False)
    if result.smallest_detectable is not None:
        RESULTS.print(f"A change of the bias by {result.smallest_detectable:.3f} would show with 90 % probability.")
    RESULTS.print(f"advice: {result.advice.action.value.replace('_', ' ')}; {escape(result.advice.reason)}")
    RESULTS.print(f"outcome: {_WORDS[result.outcome.value]}", style=_STYLES[result.outcome.value])


def _moved_table(result: "Drift") -> Table:
    table = _table(
        f"change: {result.traffic_rounds} rounds of {result.traffic_prompts} prompts against "
        f"{result.reference_rounds} of {result.reference_prompts}",
        _MOVED,
    )
    for p in result.positions:
        psi = f"{_number(p.psi)} ({p.psi_floor:.3f})"
        moved = (_interval(p.acceptance_change), _interval(p.bias_change))
        table.add_row(str(p.position), psi, _number(p.wasserstein), *moved)
    return table


def _now_table(result: "Drift") -> Table:
    table = _table(f"now, {result.view} confidences (ECE and AUROC: reference → traffic)", _NOW)
    for p in result.positions:
        ece = f"{_number(p.ece_reference)} → {_number(p.ece)}"
        auroc = f"{_number(p.auroc_reference)} → {_number(p.auroc)}"
        table.add_row(str(p.position), _number(p.acceptance), _number(p.bias), ece, auroc)
    return table


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _number(estimate: "Estimate") -> str:
    return "–" if estimate.value is None else f"{estimate.value:.3f}"


def _interval(estimate: "Estimate") -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "–"
    return f"{estimate.value:+.3f} ({estimate.low:+.3f}…{estimate.high:+.3f})"
