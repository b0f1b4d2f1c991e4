"""The files of one import: readable, and each one given once."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from dspark_calib.errors import TraceFormatError


def refuse_repeated_files(paths: Iterable[Path]) -> None:
    """Refuse a missing file, and a file whose bytes were already given under any name.

    Raises:
        TraceFormatError: Naming both files.
    """
    seen: dict[bytes, Path] = {}
    for path in paths:
        digest = _digest(path)
        if digest in seen:
            raise TraceFormatError(
                f"{path}: the same content as {seen[digest]}; counted twice it would narrow intervals"
            )
        seen[digest] = path


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror})") from error
