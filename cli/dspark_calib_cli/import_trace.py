"""`import`: turn an engine's own records into a trace."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_calib_cli.console import RESULTS, print_json, warn
from dspark_calib_cli.options import DEFAULT_TRACE, Config, Format, OutputFormat, Overwrite, Quiet

if TYPE_CHECKING:
    from dspark_calib.trace.readers.importing import ImportResult


def import_trace(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT", help="deepspec, sglang-shards, sglang-server-info, vllm-metrics or deepinfer."
        ),
    ],
    source: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help="Files, or a folder of shards.")],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Trace folder to write.")] = DEFAULT_TRACE,
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="FILE",
            help="The table the server applied (sglang-server-info): confidences are un-scaled by it.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    output: Format = OutputFormat.TEXT,
    quiet: Quiet = False,
    config: Config = None,  # noqa: ARG001 - read by the app before the command runs
) -> None:
    """Turn an engine's own records into a trace; counters without rounds become acceptance.json.

    Every row is kept or refused for a reason that is counted.

    Example: dspark-calib import sglang-shards sts.0.pt sts.1.pt --out trace
    """
    from dspark_calib.calibration import read_calibration
    from dspark_calib.trace.readers.importing import import_records

    temperatures = None if calibration is None else read_calibration(calibration).temperatures
    result = import_records(kind, source, out, temperatures=temperatures, overwrite=overwrite)
    if output is OutputFormat.JSON:
        print_json(result.to_dict())
    else:
        _print(result)
    for note in result.notes:
        warn(note, quiet=quiet)


def _print(result: "ImportResult") -> None:
    account = result.account
    RESULTS.print(f"{result.path}: {account.kept} of {account.read} rows kept, γ = {result.gamma}", markup=False)
    for reason, count in account.refused:
        RESULTS.print(f"  refused {count}: {reason}", markup=False)
