"""Options that several commands share, written once."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer


class OutputFormat(StrEnum):
    """What goes to stdout."""

    TEXT = "text"
    JSON = "json"


Traces: TypeAlias = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[TRACE]...", help="Trace folders.", show_default="trace"),
]
TraceFolder: TypeAlias = Annotated[Path, typer.Argument(metavar="[TRACE]", help="Trace folder.")]
CalibrationOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="FILE", help="Calibration file.", show_default="calibration.json if there"),
]
Format: TypeAlias = Annotated[OutputFormat, typer.Option("--format", help="What stdout carries.")]
Overwrite: TypeAlias = Annotated[bool, typer.Option("--overwrite/--no-overwrite", help="Replace an existing output.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet/--no-quiet", help="No progress and no warnings.")]
Config: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Defaults, a table a command.", show_default="dspark-calib.toml"),
]
AllowMixed: TypeAlias = Annotated[
    bool, typer.Option("--allow-mixed/--no-allow-mixed", help="Join traces of different checkpoint, law or policy.")
]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random choice.")]
Workers: TypeAlias = Annotated[str, typer.Option("--workers", metavar="N|ray", help="Processes, or Ray actors.")]

DEFAULT_TRACE = Path("trace")
DEFAULT_CALIBRATION = Path("calibration.json")


def worker_count(workers: str) -> int | Literal["ray"]:
    """Read what `--workers` was given."""
    if workers == "ray":
        return "ray"
    if workers.isdecimal() and int(workers) > 0:
        return int(workers)
    raise typer.BadParameter(f"{workers!r} is neither a number from 1 up nor `ray`", param_hint="--workers")
