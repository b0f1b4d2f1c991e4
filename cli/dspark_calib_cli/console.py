"""The two streams: results to stdout, progress and warnings to stderr."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress

RESULTS = Console(soft_wrap=False, highlight=False)
_MESSAGES = Console(stderr=True, highlight=False)


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
