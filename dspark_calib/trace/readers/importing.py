"""The whole of `import`: read foreign records, write a trace or acceptance counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_calib.errors import ConfigError, OutputExists
from dspark_calib.trace.readers.acceptance import FILE_NAME, AcceptanceCounts, write_acceptance
from dspark_calib.trace.readers.deepinfer import read_deepinfer
from dspark_calib.trace.readers.deepspec import read_deepspec
from dspark_calib.trace.readers.imported import Imported, RowAccount
from dspark_calib.trace.readers.sglang_server_info import read_sglang_server_info
from dspark_calib.trace.readers.sglang_shards import read_sglang_shards
from dspark_calib.trace.readers.vllm_metrics import read_vllm_metrics
from dspark_calib.trace.store import write_trace

ROUNDS = {"deepspec": read_deepspec, "sglang-shards": read_sglang_shards}
SERVER_INFO = "sglang-server-info"
COUNTERS = {"vllm-metrics": read_vllm_metrics, "deepinfer": read_deepinfer}
FORMATS = (*ROUNDS, SERVER_INFO, *COUNTERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What was imported.

    Attributes:
        path: The trace folder, or the file of acceptance counts.
        account: Rows read, kept and refused.
        gamma: Drafts in a block.
        notes: The format's known traps, for the reader.
    """

    path: Path
    account: RowAccount
    gamma: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "path": str(self.path),
            "gamma": self.gamma,
            "read": self.account.read,
            "kept": self.account.kept,
            "refused": dict(self.account.refused),
            "notes": list(self.notes),
        }


def import_records(
    kind: str,
    sources: Sequence[Path],
    out: Path,
    *,
    temperatures: Sequence[float] | None = None,
    overwrite: bool = False,
) -> ImportResult:
    """Read records of one format and write them.

    Args:
        kind: One of `FORMATS`.
        sources: Files, or folders where the format has shards.
        out: Trace folder; formats that only count write `acceptance.json` into it.
        temperatures: The table the server applied, for `sglang-server-info`.
        overwrite: Replace an existing output.

    Raises:
        ConfigError: If the format is unknown, or temperatures are given to one that has no use for them.
        TraceFormatError: If the source does not follow its format.
        OutputExists: If the output stands already.
    """
    if kind not in FORMATS:
        raise ConfigError(f"unknown format {kind!r}; known are {', '.join(FORMATS)}")
    if temperatures is not None and kind != SERVER_INFO:
        raise ConfigError(f"--calibration is only for {SERVER_INFO}: {kind} records carry raw logits or none")
    if kind in COUNTERS:
        return _write_counts(COUNTERS[kind](sources), out, overwrite=overwrite)
    imported = read_sglang_server_info(sources, temperatures) if kind == SERVER_INFO else ROUNDS[kind](sources)
    return _write_rounds(imported, out, overwrite=overwrite)


def _write_rounds(imported: Imported, out: Path, *, overwrite: bool) -> ImportResult:
    trace = write_trace(out, imported.provenance, imported.batches, overwrite=overwrite)
    return ImportResult(path=out, account=imported.account, gamma=trace.gamma, notes=imported.provenance.notes)


def _write_counts(counts: AcceptanceCounts, out: Path, *, overwrite: bool) -> ImportResult:
    path = out / FILE_NAME
    if path.exists() and not overwrite:
        raise OutputExists(f"{path} exists already; name another output or pass --overwrite")
    write_acceptance(path, counts)
    return ImportResult(path=path, account=counts.account, gamma=counts.gamma, notes=counts.notes)
