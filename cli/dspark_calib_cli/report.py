"""`report`: the page a release decision is made from, and its twins for machines and pull requests."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_calib_cli.console import RESULTS, print_json, progress_bar, say, warn
from dspark_calib_cli.options import (
    DEFAULT_CALIBRATION,
    DEFAULT_TRACE,
    AllowMixed,
    CalibrationOption,
    Config,
    Format,
    OutputFormat,
    Overwrite,
    Quiet,
    Seed,
)

if TYPE_CHECKING:
    from dspark_calib.summary.record import Report


class Grouping(StrEnum):
    """Columns that can make the groups of a report."""

    DOMAIN = "domain"
    DATASET = "dataset"


def report(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[TRACE]...", help="Trace folders and acceptance.json files.", show_default="trace"),
    ] = None,
    html: Annotated[
        bool, typer.Option("--html/--no-html", help="Write report.html; done anyway if no form is named.")
    ] = False,
    json: Annotated[bool, typer.Option("--json/--no-json", help="Write report.json.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown/--no-markdown", help="Write report.md, at most 60 KB.")] = False,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Write figures/: HTML fragments, SVG and PNG with kaleido.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder to write into.")] = Path("report"),
    calibration: CalibrationOption = None,
    sps: Annotated[
        Path | None, typer.Option("--sps", metavar="FILE", help="Speed curve: replay schedulers on the trace.")
    ] = None,
    by: Annotated[Grouping, typer.Option("--by", help="What makes the groups.")] = Grouping.DOMAIN,
    compare: Annotated[
        Path | None, typer.Option("--compare", metavar="OLD", help="Trace folder or report.json to compare with.")
    ] = None,
    seed: Seed = 0,
    output: Format = OutputFormat.TEXT,
    overwrite: Overwrite = False,
    allow_mixed: AllowMixed = False,
    quiet: Quiet = False,
    config: Config = None,  # noqa: ARG001 - app reads it before the command runs
) -> None:
    """Say whether temperatures may ship, what they do, where it is bad and why.

    Several traces of one drafter are joined; traces of other drafters for the same target are laid beside the
    first. A calibration is judged held out by prompt on the trace it was fitted on.

    Example: dspark-calib report trace --html --calibration calibration.json
    """
    from dspark_calib.summary.inputs import read_report
    from dspark_calib_reports.files import Formats, check_free, write_report

    formats = Formats(html=html or not (json or markdown or figures), json=json, markdown=markdown, figures=figures)
    check_free(out, formats, overwrite=overwrite)
    with progress_bar(quiet=quiet) as progress:
        task = progress.add_task("reading", total=None, speed="")
        made = read_report(
            traces or [DEFAULT_TRACE],
            calibration=calibration or (DEFAULT_CALIBRATION if DEFAULT_CALIBRATION.is_file() else None),
            sps=sps,
            old=compare,
            by="domain" if by is Grouping.DOMAIN else "dataset",
            seed=seed,
            allow_mixed=allow_mixed,
            progress=lambda step, done: progress.update(task, description=step, completed=done),
        )
    written = write_report(made, out, formats)
    if written.no_images is not None:
        warn(f"no SVG and PNG: {written.no_images}", quiet=quiet)
    if output is OutputFormat.JSON:
        print_json({"outcome": made.verdict.outcome, "files": [str(path) for path in written.files]})
    else:
        _print(made, written.files)
        say("open the page in a browser; it needs no network", quiet=quiet or not formats.html)


def _print(made: "Report", files: tuple[Path, ...]) -> None:
    from dspark_calib_reports.verdict import HEADLINES, state_verdict

    RESULTS.print(f"{HEADLINES[made.verdict.outcome]}. {state_verdict(made)}", markup=False)
    for path in files:
        RESULTS.print(f"wrote {path}", markup=False, soft_wrap=True)
