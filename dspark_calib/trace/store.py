"""Traces on disk and in memory: reading in bounded batches, writing part by part.

A trace is a folder with `trace.json` and `part-*.parquet`. `trace.json` is written last, so a folder
without it is a collection that was interrupted. Every file is written under a temporary name and renamed.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from dspark_calib.errors import InsufficientData, OutputExists, TraceFormatError
from dspark_calib.trace.clusters import PromptClusters
from dspark_calib.trace.columns import rounds_from_arrow, rounds_to_arrow
from dspark_calib.trace.provenance import Provenance
from dspark_calib.trace.rounds import OPTIONAL_BLOCK_COLUMNS, Rounds, check_rounds, concat_rounds

if TYPE_CHECKING:
    import pandas as pd

BATCH_ROWS = 131_072
_PROVENANCE_FILE = "trace.json"
JOURNAL_FILE = "collection.jsonl"
"""Beside the parts: what a collection noted on its way, so that it can be resumed."""


@dataclass(frozen=True)
class Trace:
    """Rounds with their provenance; a handle, so that rows are read only when asked for.

    Attributes:
        provenance: Where the rounds come from.
        sources: Part files, or rounds in memory, in row order.
        name: What messages and reports call this trace: its folder, or `memory`.
    """

    provenance: Provenance
    sources: tuple[Path | Rounds, ...]
    name: str = "memory"

    @classmethod
    def of(cls, rounds: Rounds, provenance: Provenance, name: str = "memory") -> "Trace":
        """Wrap rounds in memory, completing the counts of the provenance."""
        clusters = PromptClusters()
        clusters.assign(rounds)
        counted = provenance.with_counts(len(rounds), clusters.prompt_count)
        return cls(provenance=counted, sources=(check_rounds(rounds, name),), name=name)

    @property
    def gamma(self) -> int:
        """Drafts in a block."""
        return self.provenance.gamma

    @property
    def num_rounds(self) -> int:
        """Rows of the trace."""
        return self.provenance.rounds

    @cached_property
    def content_hash(self) -> str:
        """sha256 over the parts in order: equal for equal rows written in equal parts."""
        digest = hashlib.sha256()
        for source in self.sources:
            digest.update(_source_digest(source))
        return digest.hexdigest()

    def batches(self, optional: Sequence[str] | None = None, batch_rows: int = BATCH_ROWS) -> Iterator[Rounds]:
        """Yield the rows in order, at most `batch_rows` at a time.

        Args:
            optional: Which optional columns to read where present; None reads all of them.
            batch_rows: Bound on the rows of a batch, and so on memory.

        Raises:
            TraceFormatError: If a part file is damaged or a row breaks a rule of the trace.
        """
        wanted = tuple(OPTIONAL_BLOCK_COLUMNS) if optional is None else tuple(optional)
        for source in self.sources:
            if isinstance(source, Rounds):
                for start in range(0, len(source), batch_rows):
                    yield source.take(slice(start, start + batch_rows))
            else:
                yield from _read_part(source, self.gamma, wanted, batch_rows)

    def only(self, sources: Sequence[Path | Rounds]) -> "Trace":
        """Return the same trace seen through some of its sources; its provenance still counts all rows."""
        return replace(self, sources=tuple(sources))

    def read(self, optional: Sequence[str] | None = None) -> Rounds:
        """Return all rows at once.

        Raises:
            InsufficientData: If there are none.
        """
        parts = list(self.batches(optional))
        if not parts:
            raise InsufficientData(f"{self.name} holds no rounds; collect more prompts")
        return concat_rounds(parts)

    def to_pandas(self) -> "pd.DataFrame":
        """Return all rows as a data frame for notebooks; block columns hold one array a row."""
        frame: pd.DataFrame = rounds_to_arrow(self.read()).to_pandas()
        return frame


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Open a trace folder without reading its rows.

    Raises:
        TraceFormatError: If it is no finished trace, or its files do not hold the rows that trace.json counts.
    """
    folder = Path(path)
    file = folder / _PROVENANCE_FILE
    if not file.is_file():
        raise TraceFormatError(f"{folder}: {_missing(folder)}")
    provenance = Provenance.from_dict(read_json_object(file), str(file))
    parts = tuple(sorted(folder.glob("part-*.parquet")))
    rows = sum(_part_rows(part) for part in parts)
    if rows != provenance.rounds:
        raise TraceFormatError(
            f"{folder}: trace.json counts {provenance.rounds} rounds, the part files hold {rows}; "
            "a part is missing or foreign"
        )
    return Trace(provenance=provenance, sources=parts, name=str(folder))


def write_trace(
    path: str | os.PathLike[str], provenance: Provenance, batches: Iterable[Rounds], *, overwrite: bool = False
) -> Trace:
    """Write batches as a finished trace, one part file each; nothing stays behind if a batch fails.

    Raises:
        OutputExists: If the folder stands already and `overwrite` is not set.
        TraceFormatError: If a row breaks a rule of the trace.
    """
    folder = Path(path)
    _refuse_existing(folder, overwrite=overwrite)
    staging = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    writer = TraceWriter(staging)
    try:
        for index, rounds in enumerate(batches):
            writer.write_part(index, rounds)
        writer.complete(provenance)
        remove_trace(folder)
        staging.rename(folder)
    except BaseException:
        remove_trace(staging)
        raise
    return open_trace(folder)


class TraceWriter:
    """Writes a trace part by part, so that an interrupted collection keeps what it finished.

    Parts are numbered by the batch they hold; a batch that is there already need not be collected again.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = Path(path)
        self.folder.mkdir(parents=True, exist_ok=True)

    def part_path(self, index: int) -> Path:
        """Return the file of batch `index`."""
        return self.folder / f"part-{index:05d}.parquet"

    def finished_parts(self) -> frozenset[int]:
        """Return the numbers of the parts already written."""
        return frozenset(int(part.stem.removeprefix("part-")) for part in self.folder.glob("part-*.parquet"))

    def write_part(self, index: int, rounds: Rounds) -> Path:
        """Write one batch under a temporary name, then rename it.

        Raises:
            TraceFormatError: If a row breaks a rule of the trace.
        """
        path = self.part_path(index)
        check_rounds(rounds, path.name)
        staging = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            pq.write_table(rounds_to_arrow(rounds), staging, row_group_size=BATCH_ROWS, compression="zstd")
            staging.replace(path)
        finally:
            staging.unlink(missing_ok=True)
        return path

    def complete(self, provenance: Provenance) -> Trace:
        """Count the rows and prompts of all parts and write `trace.json`, which finishes the trace."""
        clusters = PromptClusters()
        rows = 0
        for index in sorted(self.finished_parts()):
            for rounds in _read_part(self.part_path(index), provenance.gamma, (), BATCH_ROWS):
                clusters.assign(rounds)
                rows += len(rounds)
        write_json(self.folder / _PROVENANCE_FILE, provenance.with_counts(rows, clusters.prompt_count).to_dict())
        return open_trace(self.folder)


def remove_trace(path: str | os.PathLike[str]) -> None:
    """Delete the files of a trace and its folder where nothing else is left in it."""
    folder = Path(path)
    remove_unfinished_parts(folder)
    for file in (*folder.glob("part-*.parquet"), folder / _PROVENANCE_FILE, folder / JOURNAL_FILE):
        file.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def remove_unfinished_parts(path: str | os.PathLike[str]) -> None:
    """Delete what a killed collection was writing."""
    for file in Path(path).glob(".part-*.partial"):
        file.unlink(missing_ok=True)


def write_json(path: Path, value: object) -> None:
    """Write strict JSON (never NaN) under a temporary name, then rename it."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        staging.write_text(text, encoding="utf-8")
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)


def read_json_object(path: Path) -> dict[str, object]:
    """Read a JSON object.

    Raises:
        TraceFormatError: If the file cannot be read, is no JSON or holds another kind of value.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise TraceFormatError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(value, dict):
        raise TraceFormatError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _refuse_existing(folder: Path, *, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise OutputExists(f"{folder} is a file; name another output folder")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise OutputExists(f"{folder} exists already; name another output or pass --overwrite")


def _missing(folder: Path) -> str:
    if not folder.exists():
        return "there is no such trace; make one with `dspark-calib collect` or `dspark-calib import`"
    if any(folder.glob("part-*.parquet")):
        return "the collection was not finished; go on with `dspark-calib collect --resume`"
    if (folder / "acceptance.json").is_file():
        return "holds acceptance counts and no rounds: `dspark-calib report` shows them, nothing can be fitted"
    return "not a trace (no trace.json); name a folder that `dspark-calib collect` or `dspark-calib import` wrote"


def _open_part(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise TraceFormatError(f"{path}: not a readable Parquet file ({error}); collect that part again") from error


def _part_rows(path: Path) -> int:
    with _open_part(path) as part:
        return int(part.metadata.num_rows)


def _read_part(path: Path, gamma: int, optional: tuple[str, ...], batch_rows: int) -> Iterator[Rounds]:
    row = 0
    with _open_part(path) as part:
        left_out = set(OPTIONAL_BLOCK_COLUMNS) - set(optional)
        columns = [name for name in part.schema_arrow.names if name not in left_out]
        try:
            for batch in part.iter_batches(batch_rows, columns=columns):
                yield check_rounds(rounds_from_arrow(batch, gamma, str(path)), str(path), row)
                row += len(batch)
        except (OSError, pa.ArrowInvalid) as error:
            raise TraceFormatError(f"{path}: damaged after row {row} ({error}); collect that part again") from error


def _source_digest(source: Path | Rounds) -> bytes:
    if isinstance(source, Path):
        with source.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    digest = hashlib.sha256()
    for batch in rounds_to_arrow(source).to_batches():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        digest.update(sink.getvalue())
    return digest.digest()
