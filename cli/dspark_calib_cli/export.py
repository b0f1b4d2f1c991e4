"""`export`: write the temperatures as an engine reads them."""

from pathlib import Path
from typing import Annotated

import typer

from dspark_calib_cli.console import print_json, say, warn
from dspark_calib_cli.options import DEFAULT_CALIBRATION, Config, Format, OutputFormat, Overwrite, Quiet


def export(
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="ENGINE",
            help="deepinfer, sglang, tensorrt-llm, deepspec, env, kubernetes, shell or vllm.",
        ),
    ],
    calibration: Annotated[
        Path, typer.Argument(metavar="[CALIBRATION]", help="Calibration file.")
    ] = DEFAULT_CALIBRATION,
    drafter: Annotated[
        str | None,
        typer.Option(
            "--drafter", metavar="NAME|FOLDER", help="The drafter to be served: it must be the one fitted on."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where to write.", show_default="stdout")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Read --out back by the engine's own rule; write it if missing.")
    ] = False,
    allow_other_checkpoint: Annotated[
        bool,
        typer.Option(
            "--allow-other-checkpoint/--no-allow-other-checkpoint", help="Export although --drafter is another one."
        ),
    ] = False,
    overwrite: Overwrite = False,
    output: Format = OutputFormat.TEXT,
    quiet: Quiet = False,
    config: Config = None,  # noqa: ARG001 - read by the app before the command runs
) -> None:
    """Write the temperatures as an inference engine reads them, to stdout or --out.

    Example: dspark-calib export calibration.json --engine sglang --out dspark-sts.json --check
    """
    from dspark_calib.engines.export_file import export_calibration

    exported = export_calibration(
        calibration,
        engine,
        drafter_hash=None if drafter is None else _hash_of(drafter),
        out=out,
        check=check,
        allow_other_checkpoint=allow_other_checkpoint,
        overwrite=overwrite,
    )
    for message in exported.warnings:
        warn(message, quiet=quiet)
    if output is OutputFormat.JSON:
        print_json(exported.to_dict())
    elif out is None:
        typer.echo(exported.text, nl=False)
    else:
        say(f"{'wrote' if exported.written else 'checked'} {out}", quiet=quiet)
    say(exported.usage, quiet=quiet)


def _hash_of(drafter: str) -> str:
    from dspark_calib.errors import MissingExtra

    try:
        from dspark_calib.drafters.checkpoint import find_checkpoint, hash_files, weight_files
        from dspark_calib.drafters.loading import parse_source
    except ImportError as error:
        raise MissingExtra("torch", "collect", "comparing a calibration with --drafter") from error
    name, _ = parse_source(drafter)
    return hash_files(weight_files(find_checkpoint(name)))
