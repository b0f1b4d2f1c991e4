"""`doctor`: what is installed, and whether target and drafter fit, before any long run."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from dspark_calib_cli.console import RESULTS, print_json
from dspark_calib_cli.options import Config, Format, OutputFormat

if TYPE_CHECKING:
    from dspark_calib.collection.readiness import Check

_STYLES = {"ok": "green", "missing": "yellow", "problem": "red"}


def doctor(
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME|FOLDER", help="Verifying model to look at.")
    ] = None,
    drafter: Annotated[
        str | None, typer.Option("--drafter", metavar="NAME|FOLDER", help="Draft model to look at beside it.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, …")] = "auto",
    output_format: Format = OutputFormat.TEXT,
    config: Config = None,  # noqa: ARG001 - read before the command is chosen
) -> None:
    """Look at the installation, the device and the models; exit code 2 if something is in the way.

    Example: dspark-calib doctor --target Qwen/Qwen3-4B --drafter deepseek-ai/dspark_qwen3_4b_block7
    """
    if drafter is not None and target is None:
        raise typer.BadParameter("needs --target beside it: a drafter fits one target", param_hint="--drafter")
    from dspark_calib.collection.readiness import State, check_readiness

    checks = check_readiness(target, drafter, device=device)
    if output_format is OutputFormat.JSON:
        print_json([{"subject": c.subject, "state": c.state.value, "detail": c.detail} for c in checks])
    else:
        RESULTS.print(_table(checks))
    if any(check.state is State.PROBLEM for check in checks):
        raise typer.Exit(2)


def _table(checks: "tuple[Check, ...]") -> Table:
    table = Table("", "state", "found")
    for check in checks:
        state = Text(check.state.value, style=_STYLES[check.state.value])
        table.add_row(Text(check.subject), state, Text(check.detail))
    return table
