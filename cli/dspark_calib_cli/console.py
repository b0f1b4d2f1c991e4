"""The two streams: results to stdout, progress and warnings to stderr."""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

_CONTROLS = dict.fromkeys([*(c for c in range(0x20) if c not in (0x09, 0x0A)), *range(0x7F, 0xA0)])

_ANY_WIDTH = 10_000


class _PlainTextConsole(Console):
    """A console whose text is only text: a name in a file cannot colour it, clear it or move the cursor."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments without control characters in what they show."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=segment.text.translate(_CONTROLS))


RESULTS = _PlainTextConsole(soft_wrap=False, highlight=False)
_MESSAGES = _PlainTextConsole(stderr=True, highlight=False)


def print_table(table: "Table") -> None:
    """Print a table on stdout; where the terminal is too narrow its lines run over, but no column is lost."""
    needed = RESULTS.measure(table, options=RESULTS.options.update(width=_ANY_WIDTH))
    if needed.minimum > RESULTS.width:
        table.width = needed.maximum
    RESULTS.print(table, crop=False)


def print_json(value: object) -> None:
    """Print one JSON value on stdout: never NaN, never coloured."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def warn(message: str, *, quiet: bool = False) -> None:
    """Print a warning on stderr."""
    if not quiet:
        _MESSAGES.print(f"warning: {message}", style="yellow", markup=False)


def say(message: str, *, quiet: bool = False) -> None:
    """Print a remark on stderr."""
    if not quiet:
        _MESSAGES.print(message, markup=False)


def fail(message: str) -> None:
    """Print an error on stderr."""
    _MESSAGES.print(f"error: {message}", style="red", markup=False, soft_wrap=True)


@contextmanager
def progress_bar(*, quiet: bool = False, unit: str = "rounds") -> Iterator["Progress"]:
    """Show a progress bar with speed and time left on stderr, only where that is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}" + f" {unit}/s"),
        TimeRemainingColumn(),
    )
    hidden = quiet or not _MESSAGES.is_terminal
    # Up to 14, rich ends a bar that it was told not to show with an empty line; a quiet console swallows it.
    console = Console(stderr=True, quiet=True) if hidden else _MESSAGES
    with Progress(*columns, console=console, disable=hidden) as progress:
        yield progress


def flush_and_ignore_closed_pipe() -> None:
    """Let `dspark-calib … | head` end quietly."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
