"""`fit-sts`: temperatures from a trace, judged on prompts they have not seen."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dspark_calib_cli.console import print_json, progress_bar, say, warn
from dspark_calib_cli.fit_sts_tables import print_calibration
from dspark_calib_cli.options import (
    DEFAULT_CALIBRATION,
    DEFAULT_TRACE,
    AllowMixed,
    Config,
    Format,
    OutputFormat,
    Overwrite,
    Quiet,
    Seed,
    Traces,
    worker_count,
)


class ObjectiveName(StrEnum):
    """What a fit minimises."""

    ECE = "ece"
    BRIER = "brier"
    NLL = "nll"


class GridName(StrEnum):
    """Where a fit looks."""

    DEFAULT = "default"
    SGLANG = "sglang"
    DEEPSPEC = "deepspec"


class SelectName(StrEnum):
    """How a fit picks among good temperatures."""

    PARSIMONIOUS = "parsimonious"
    PAPER = "paper"


class GroupName(StrEnum):
    """Column that also gets fits of its own."""

    DOMAIN = "domain"
    DATASET = "dataset"


def fit_sts(
    traces: Traces = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Calibration file to write.")
    ] = DEFAULT_CALIBRATION,
    objective: Annotated[ObjectiveName, typer.Option("--objective", help="What to minimise.")] = ObjectiveName.ECE,
    grid: Annotated[
        GridName, typer.Option("--grid", help="Temperatures to try; sglang and deepspec reproduce those fitters.")
    ] = GridName.DEFAULT,
    select: Annotated[
        SelectName, typer.Option("--select", help="Leave T = 1 only on evidence, or take the paper's bare minimum.")
    ] = SelectName.PARSIMONIOUS,
    joint: Annotated[
        bool, typer.Option("--joint/--no-joint", help="Refine all temperatures together after the sequential pass.")
    ] = False,
    bins: Annotated[int, typer.Option("--bins", min=2, max=1000, help="Bins of the ECE.")] = 20,
    holdout: Annotated[
        float, typer.Option("--holdout", min=0.0, max=0.5, help="Share of prompts held out; 0 judges in-sample.")
    ] = 0.5,
    by: Annotated[
        GroupName | None, typer.Option("--by", help="Also fit each group alone and judge it on the others.")
    ] = None,
    seed: Seed = 0,
    workers: Annotated[
        str, typer.Option("--workers", metavar="N|ray", help="Threads, or Ray actors that share the part files.")
    ] = "2",
    accept: Annotated[
        str, typer.Option("--accept", metavar="FINDING[,…]|all", help="Findings on the trace to accept by name.")
    ] = "",
    output: Format = OutputFormat.TEXT,
    overwrite: Overwrite = False,
    allow_mixed: AllowMixed = False,
    quiet: Quiet = False,
    config: Config = None,  # noqa: ARG001 - read by the app before the command runs
) -> None:
    """Fit one temperature a draft position, left to right, and judge it on prompts it has not seen.

    Example: dspark-calib fit-sts trace --out calibration.json
    """
    from dspark_calib.calibration.file import refuse_existing, write_calibration
    from dspark_calib.calibration.fit_calibration import fit_calibration
    from dspark_calib.trace import combine_traces, open_trace

    count = worker_count(workers)
    refuse_existing(out, overwrite=overwrite)
    trace = combine_traces([open_trace(t) for t in traces or [DEFAULT_TRACE]], allow_mixed=allow_mixed)
    with progress_bar(quiet=quiet) as progress:
        task = progress.add_task("reading", total=trace.num_rounds, speed="")
        calibration = fit_calibration(
            trace,
            objective=objective.value,
            grid=grid.value,
            select=select.value,
            joint=joint,
            bins=bins,
            holdout=holdout,
            by=None if by is None else by.value,
            seed=seed,
            workers=count,
            accept=tuple(name for name in accept.split(",") if name),
            progress=lambda step, rows: progress.update(task, description=step, completed=rows),
        )
    write_calibration(out, calibration, overwrite=overwrite)
    for finding in calibration.findings:
        warn(f"{finding.name}: {finding.message}", quiet=quiet)
    if output is OutputFormat.JSON:
        print_json(calibration.to_dict())
    else:
        print_calibration(calibration)
    say(f"wrote {out}", quiet=quiet)
