"""The Typer app and its one error boundary.

Exit codes: 0 done or passed, 1 gate failed, 2 usage or data error, 3 inconclusive.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dspark_calib.errors import DsparkCalibError
from dspark_calib_cli.collect import collect
from dspark_calib_cli.config_file import FILE_NAME, OptionTable, load_defaults
from dspark_calib_cli.console import fail, flush_and_ignore_closed_pipe, say
from dspark_calib_cli.doctor import doctor
from dspark_calib_cli.drift import drift
from dspark_calib_cli.export import export
from dspark_calib_cli.fit_sts import fit_sts
from dspark_calib_cli.gate import gate
from dspark_calib_cli.import_trace import import_trace
from dspark_calib_cli.profile_sps import profile_sps
from dspark_calib_cli.report import report
from dspark_calib_cli.simulate import simulate

_USAGE = 2
_INTERRUPTED = 130  # the shell's code for Ctrl-C, which typer exits with without a word
app = typer.Typer(
    name="dspark-calib",
    help="Calibration and diagnostics for confidence-scheduled speculative decoding (DSpark).",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_versions(wanted: bool) -> None:
    if wanted:
        from dspark_calib_cli.versions import version_lines

        typer.echo("\n".join(version_lines()))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_versions, is_eager=True, help="Versions of tool and libraries.")
    ] = False,
) -> None:
    pass


app.command("collect")(collect)
app.command("import")(import_trace)
app.command("fit-sts")(fit_sts)
app.command("report")(report)
app.command("gate")(gate)
app.command("export")(export)
app.command("drift")(drift)
app.command("simulate")(simulate)
app.command("profile-sps")(profile_sps)
app.command("doctor")(doctor)


def main() -> None:
    """Run the command line and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code.

    Data errors become one line on stderr and code 2. A bug keeps its traceback.
    """
    command = typer.main.get_command(app)
    defaults: dict[str, dict[str, object]] = {}
    try:
        defaults = _file_defaults(arguments, command)
        command.main(args=list(arguments), prog_name="dspark-calib", default_map=defaults)
    except DsparkCalibError as error:
        fail(str(error))
        return 2
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            fail("interrupted; what was not finished was not written")
        if end.code == _USAGE and any(defaults.get(word) for word in arguments[:1]):
            say(f"options that are not on the command line come from {_config_argument(arguments) or FILE_NAME}")
        return int(end.code or 0)
    finally:
        flush_and_ignore_closed_pipe()
    return 0


def _file_defaults(arguments: Sequence[str], command: Any) -> dict[str, dict[str, object]]:
    named = _config_argument(arguments)
    path = named or Path(FILE_NAME)
    if named is None and not path.is_file():
        return {}
    return load_defaults(path, {name: OptionTable(sub.params) for name, sub in command.commands.items()})


def _config_argument(arguments: Sequence[str]) -> Path | None:
    for index, argument in enumerate(arguments):
        if argument.startswith("--config="):
            return Path(argument.removeprefix("--config="))
        if argument == "--config" and index + 1 < len(arguments):
            return Path(arguments[index + 1])
    return None
