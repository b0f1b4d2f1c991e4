"""The files of one import: readable, hashed, and each one given once."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from dspark_calib.errors import TraceFormatError


def hash_sources(paths: Iterable[Path]) -> dict[str, str]:
    """Return the sha256 of each file by its path, refusing one whose bytes were already given under any name.

    Raises:
        TraceFormatError: Naming both files.
    """
    seen: dict[str, Path] = {}
    for path in paths:
        digest = _digest(path)
        if digest in seen:
            raise TraceFormatError(
                f"{path}: the same content as {seen[digest]}; counted twice it would narrow intervals"
            )
        seen[digest] = path
    return {str(path): digest for digest, path in seen.items()}


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TraceFormatError(f"{path}: cannot be read ({error.strerror})") from error
