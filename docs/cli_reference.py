"""Write docs/reference/cli.md from the command line app itself; `--check` fails where the page is not current."""

import re
import sys
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer

from dspark_calib_cli.app import app

PAGE = Path(__file__).parent / "reference" / "cli.md"

INTRODUCTION = """# Command line

This page is generated from the app by `docs/cli_reference.py`; `dspark-calib COMMAND --help` says the same.

| exit code | meaning |
|---|---|
| 0 | done, or passed |
| 1 | the gate failed, or drift was found |
| 2 | usage or data error: one message that says what, where and what to do |
| 3 | inconclusive (`gate`, `drift`) |

The result goes to stdout (`--format json` for machines), progress and warnings to stderr. Progress bars appear only
on a terminal; `NO_COLOR`
is respected. An existing output is refused without `--overwrite`. Every option can be set in
[`dspark-calib.toml`](configuration.md).

Shell completion: `dspark-calib --install-completion`. Versions of the tool and its libraries: `dspark-calib --version`.
"""


def render_reference() -> str:
    """The page as Markdown."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    hints = {info.name: get_type_hints(info.callback) for info in app.registered_commands if info.callback}
    return "\n".join([INTRODUCTION, *(_command(name, command, hints[name]) for name, command in commands.items())])


def _command(name: str, command: Any, hints: dict[str, Any]) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help" and not p.hidden]
    usage = " ".join(["dspark-calib", name, *(_metavar(a) for a in arguments), "[OPTIONS]"])
    rows = [
        f"| {_signature(p, hints.get(p.name))} | {_default(p)} | {_plain(p.help or '')} |"
        for p in [*arguments, *options]
    ]
    table = "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])
    return f"## {name}\n\n```text\n{usage}\n```\n\n{_help(command.help or '')}\n\n{table}\n"


def _help(text: str) -> str:
    """The command's help with its examples as blocks."""
    plain = re.sub(r"\\?\[/?(bold|dim|italic|cyan|green)\]", "", text.replace("\b", ""))
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", plain)]
    return "\n\n".join(re.sub(r"^(Examples?:) (.+)$", r"\1\n\n```text\n\2\n```", paragraph) for paragraph in paragraphs)


def _metavar(parameter: Any) -> str:
    return parameter.metavar or parameter.name.upper()


def _signature(parameter: Any, hint: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_metavar(parameter)}`"
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    value = "" if parameter.is_flag else f" {parameter.metavar or _values(parameter, hint)}"
    return f"`{names}{value}`".replace("|", "\\|")


def _values(parameter: Any, hint: Any) -> str:
    """What an option takes: the values of an enumeration, or the name of its type."""
    kinds = [hint, *get_args(hint)]  # `list[X] | None` and the like hold the type that is meant
    for kind in (k for k in kinds if isinstance(k, type)):
        if issubclass(kind, Enum):
            return "|".join(str(member.value) for member in kind)
    return next((k.__name__.upper() for k in kinds if k in (int, float, str, Path)), parameter.name.upper())


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    shown = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    if shown is None or shown == () or callable(shown) or str(shown) == "Sentinel.UNSET":
        return ""
    if isinstance(shown, bool):
        return f"`{parameter.opts[0] if shown else parameter.secondary_opts[0]}`" if parameter.secondary_opts else ""
    if isinstance(shown, (list, tuple)):
        shown = ",".join(map(str, shown))
    return f"`{getattr(shown, 'value', shown)}`"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    text = render_reference()
    if "--check" in sys.argv[1:]:
        sys.exit(PAGE.read_text() != text and f"{PAGE} is not current: run python {Path(__file__).name}")
    PAGE.write_text(text)
