"""DeepSpec confidence records: `confidence_records.jsonl` of pull request 63 (29e4a0e3).

One line a block, `{"logits": [...], "labels": [0/1...]}`, both cut after an accepted EOS. The records
name no prompt, model, temperature or seed. Their logits are raw unless the evaluator itself was given a
calibration, which the file does not say.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.provenance import Provenance
from dspark_calib.trace.readers.imported import NO_PROMPT_IDS, Block, Imported, RefusedRows, block_rounds, finish
from dspark_calib.trace.readers.numbers import as_float32, as_number
from dspark_calib.trace.readers.sources import hash_sources
from dspark_calib.trace.readers.untrusted import iter_json_lines
from dspark_calib.trace.readers.wording import shown_names
from dspark_calib.trace.rounds import Rounds

_BATCH_ROWS = 65_536
_MAX_GAMMA = 4096
_SHORT_BLOCKS = (
    "Blocks cut after an accepted EOS carry a logit of 0 at their unobserved positions; no measure reads those."
)
_MAYBE_SCALED = (
    "DeepSpec records do not say whether --confidence-calibration-path was given; the logits are taken as raw."
)


@dataclass(frozen=True, slots=True)
class _Record:
    where: str
    logits: list[float]
    accepted: int


def read_deepspec(paths: Sequence[Path]) -> Imported:
    """Read one or more record files; the folder of each names its data set.

    Rows with a logit that is null, NaN or infinite, and rows without any position, are refused and counted.

    Args:
        paths: `confidence_records.jsonl` files.

    Raises:
        TraceFormatError: Naming file and line, for a line that is no record, lists of different length,
            labels that are no prefix, blocks of different size, the same file twice, or no usable row.
    """
    hashes = hash_sources(paths)
    refused = RefusedRows()
    gamma, ragged = _block_size(paths)
    batches = [batch for path in paths for batch in _read_file(path, gamma, refused)]
    provenance = Provenance(
        gamma=gamma,
        source="import deepspec",
        label_law=None,
        anchor_policy="loop",
        source_files=hashes,
        notes=(NO_PROMPT_IDS, _MAYBE_SCALED) + ((_SHORT_BLOCKS,) if ragged else ()),
    )
    return finish(batches, refused, provenance, str(paths[0]))


def _block_size(paths: Sequence[Path]) -> tuple[int, bool]:
    """Return the longest block of all files, and whether any is shorter."""
    longest, shortest, where_longest = 0, _MAX_GAMMA, ""
    for path in paths:
        for where, value in iter_json_lines(path):
            length = len(_list(value, "logits", where))
            if length > longest:
                longest, where_longest = length, where
            shortest = min(shortest, length)
    if longest == 0:
        raise TraceFormatError(f"{paths[0]}: no usable round (the source is empty)")
    if longest > _MAX_GAMMA:
        raise TraceFormatError(f"{where_longest}: {longest} logits in one block; is it another format?")
    return longest, shortest < longest


def _read_file(path: Path, gamma: int, refused: RefusedRows) -> Iterator[Rounds]:
    pending: list[_Record] = []
    for where, value in iter_json_lines(path):
        record = _record(value, where)
        if not record.logits:
            refused.refuse("no position in the block")
            continue
        _refuse_other_gamma(record, gamma)
        pending.append(record)
        if len(pending) == _BATCH_ROWS:
            yield _rounds(pending, gamma, path, refused)
            pending = []
    if pending:
        yield _rounds(pending, gamma, path, refused)


def _record(value: Any, where: str) -> _Record:
    logits = [as_number(z, f"{where}, logits") for z in _list(value, "logits", where)]
    labels = _list(value, "labels", where)
    if len(labels) != len(logits):
        raise TraceFormatError(f"{where}: {len(logits)} logits but {len(labels)} labels; the record is damaged")
    if any(label not in (0, 1) for label in labels):
        raise TraceFormatError(f"{where}, labels: expected only 0 and 1")
    accepted = labels.index(0) if 0 in labels else len(labels)
    if any(labels[accepted:]):
        raise TraceFormatError(f"{where}, labels: a 1 follows a 0, so these are no prefix labels")
    return _Record(where, logits, accepted)


def _refuse_other_gamma(record: _Record, gamma: int) -> None:
    """A block is cut short only by an accepted EOS; a rejection in a short block means another γ."""
    if len(record.logits) < gamma and record.accepted < len(record.logits):
        raise TraceFormatError(
            f"{record.where}: {len(record.logits)} positions with a rejection where other blocks have {gamma}; "
            "runs of different block size must be imported one by one"
        )


def _rounds(records: list[_Record], gamma: int, path: Path, refused: RefusedRows) -> Rounds:
    observed = np.array([len(r.logits) for r in records])
    logits = as_float32([r.logits + [0.0] * (gamma - len(r.logits)) for r in records])
    usable = np.isfinite(logits).all(axis=1)
    refused.refuse("logit not finite", int((~usable).sum()))
    accepted = np.array([r.accepted for r in records])
    block = Block(logits=logits[usable], accepted=accepted[usable], observed=observed[usable])
    return block_rounds(block, dataset=path.resolve().parent.name or path.stem)


def _list(value: Any, key: str, where: str) -> list[Any]:
    if not isinstance(value, dict) or not isinstance(value.get(key), list):
        raise TraceFormatError(
            f"{where}: expected an object with the lists logits and labels, found {shown_names(value)}"
        )
    return list(value[key])
