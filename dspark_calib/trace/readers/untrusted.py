"""Text and JSON from files nobody vouches for: bounded in size and depth, one clear error each."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dspark_calib.errors import TraceFormatError

MAX_FILE_BYTES = 512 << 20  # parsed, a JSON file takes about ten times its size in memory
MAX_LINE_BYTES = 1 << 20


def read_json(path: Path, max_bytes: int = MAX_FILE_BYTES) -> Any:
    """Read one JSON value.

    Raises:
        TraceFormatError: If the file is missing, larger than `max_bytes`, or no JSON.
    """
    return parse_json(read_text(path, max_bytes), str(path))


def read_text(path: Path, max_bytes: int = MAX_FILE_BYTES) -> str:
    """Read a text file of bounded size.

    Raises:
        TraceFormatError: If it is missing, too large, or not UTF-8.
    """
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise TraceFormatError(f"{path}: {size} bytes is more than the {max_bytes} read at once; split the file")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise TraceFormatError(f"{path}: not UTF-8 text (byte {error.start}); is it another format?") from error


def iter_json_lines(path: Path, max_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[str, Any]]:
    """Yield (where, value) for each line that is not blank; `where` names file and line.

    Raises:
        TraceFormatError: At a line that is too long or no JSON.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(max_bytes + 1), b""), start=1):
                if not line.strip():
                    continue
                where = f"{path}, line {number}"
                if len(line) > max_bytes:
                    raise TraceFormatError(f"{where}: longer than {max_bytes} bytes; is it another format?")
                yield where, parse_json(_decode(line, where), where)
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror})") from error


def iter_log_lines(path: Path, max_bytes: int = MAX_LINE_BYTES) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of a log; bytes that are no UTF-8 are replaced, an overlong line is cut in pieces.

    Raises:
        TraceFormatError: If the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(max_bytes), b""), start=1):
                yield number, line.decode("utf-8", errors="replace")
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror})") from error


def parse_json(text: str, where: str) -> Any:
    """Parse one JSON value; bare NaN and Infinity are tolerated, as some evaluators write them.

    Raises:
        TraceFormatError: If the text is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise TraceFormatError(f"{where}: nested too deeply") from error
    except ValueError as error:
        raise TraceFormatError(f"{where}: not JSON ({error})") from error


def _decode(line: bytes, where: str) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceFormatError(f"{where}: not UTF-8 text; is it another format?") from error
