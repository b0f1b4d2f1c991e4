"""SGLang's STS shards: `<stem>.0.pt`, `<stem>.1.pt`, … written by `StsDataRecorder` (0b79ccf2).

Each holds tensors `logits` [n, γ] and `prefix_mask` [n, γ]; newer recorders add `observed_mask` [n, γ].
Labels compare drafts with the target's argmax, whatever the sampling temperature, so the label law is
greedy. The recorder refuses to run under a calibration, so the logits are raw. Blocks are not cut after EOS.
"""

import pickle
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import MissingExtra, TraceFormatError
from dspark_calib.trace.provenance import Provenance
from dspark_calib.trace.readers.imported import NO_PROMPT_IDS, Block, Imported, RefusedRows, block_rounds, finish
from dspark_calib.trace.readers.numbers import as_float32, prefix_lengths
from dspark_calib.trace.readers.sources import hash_sources
from dspark_calib.trace.readers.wording import shown, shown_names
from dspark_calib.trace.rounds import Rounds

_SHARD_NAME = re.compile(r"(?P<stem>.*?)\.?(?P<index>\d+)\.pt")
_PAIRING = "draft_seq_ring"
_ZIP_MAGIC = b"PK\x03\x04"  # torch.save writes a zip; older, bare pickles are not read
_GREEDY = (
    "SGLang's recorder labels a draft by the target's argmax, also where the server samples: judged by these "
    "labels, a head trained on 1 - TV looks underconfident or overconfident by the difference of the two laws."
)
_NO_EOS = "SGLang's recorder does not cut blocks after an accepted EOS: positions behind it count as observed."
_NO_WINDOW = (
    "{shards} hold no observed_mask, so every position counts as verified: if a scheduler was on, what it left "
    "out looks like rejections. Record with full-length verification."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shard:
    path: Path
    logits: npt.NDArray[np.float32]
    accepted: npt.NDArray[np.int64]
    observed: npt.NDArray[np.int64]
    has_window: bool


def read_sglang_shards(paths: Sequence[Path]) -> Imported:
    """Read shards in the order of their numbers; a folder stands for the `.pt` files in it.

    Rows with a logit that is not finite, and rows with no observed position, are refused and counted.

    Args:
        paths: Shard files or folders.

    Raises:
        MissingExtra: If torch is not installed.
        TraceFormatError: For a file that is no shard (nothing in it is ever executed), masks that are no
            prefix, shapes that differ, an empty shard, the same shard twice, or no usable row.
    """
    files = _shard_files(paths)
    hashes = hash_sources(files)
    refused = RefusedRows()
    shards = [_load(path) for path in files]
    gammas = {shard.logits.shape[1]: shard.path for shard in shards}
    if len(gammas) > 1:
        raise TraceFormatError(f"block sizes differ: {', '.join(f'{path} has γ = {g}' for g, path in gammas.items())}")
    batches = [_rounds(shard, refused) for shard in shards]
    provenance = Provenance(
        gamma=next(iter(gammas)),
        source="import sglang-shards",
        label_law="greedy",
        anchor_policy="loop",
        source_files=hashes,
        notes=(NO_PROMPT_IDS, _GREEDY, _NO_EOS, *_window_notes(shards)),
    )
    return finish(batches, refused, provenance, str(files[0]))


def _window_notes(shards: Sequence[_Shard]) -> tuple[str, ...]:
    blind = sum(not shard.has_window for shard in shards)
    return (_NO_WINDOW.format(shards=f"{blind} of {len(shards)} shards"),) if blind else ()


def _shard_files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.pt")) if path.is_dir() else [path]
        if not found:
            raise TraceFormatError(f"{path}: no .pt file in this folder; SGLang flushes a shard every 256 steps only")
        files += found
    return sorted(files, key=_shard_order)


def _shard_order(path: Path) -> tuple[str, str, int]:
    match = _SHARD_NAME.fullmatch(path.name)
    return (str(path.parent), match["stem"], int(match["index"])) if match else (str(path.parent), path.name, 0)


def _load(path: Path) -> _Shard:
    content = _load_tensors(path)
    pairing = content.get("pairing", _PAIRING)
    if not isinstance(pairing, str) or pairing != _PAIRING:
        raise TraceFormatError(f"{path}, pairing = {shown(pairing)}: confidences and labels may belong to other blocks")
    logits = _matrix(content, "logits", path)
    if not len(logits):
        raise TraceFormatError(f"{path}: an empty shard; leave it out")
    accepted = prefix_lengths(_matrix(content, "prefix_mask", path, logits.shape), f"{path}, prefix_mask")
    observed = np.full(len(logits), logits.shape[1], dtype=np.int64)
    if "observed_mask" in content:
        observed = prefix_lengths(_matrix(content, "observed_mask", path, logits.shape), f"{path}, observed_mask")
    if (accepted > observed).any():
        row = int(np.argmax(accepted > observed))
        raise TraceFormatError(f"{path}, prefix_mask, row {row}: a position that was not observed counts as accepted")
    return _Shard(
        path=path,
        logits=as_float32(logits),
        accepted=accepted,
        observed=observed,
        has_window="observed_mask" in content,
    )


def _load_tensors(path: Path) -> dict[str, Any]:
    """Load with `weights_only=True`: tensors and plain containers only, no code of the file is run."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("torch", "collect", "reading SGLang's .pt shards") from error
    with path.open("rb") as file:
        magic = file.read(len(_ZIP_MAGIC))
    if magic != _ZIP_MAGIC:
        raise TraceFormatError(f"{path}: not a file of torch.save, or truncated; SGLang may still be writing it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice on odd pickles is not for this reader
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise TraceFormatError(f"{path}: holds more than tensors, so it was not loaded; is it a shard?") from error
    except Exception as error:  # torch's unpickler meets damage with any exception there is
        raise TraceFormatError(f"{path}: damaged ({type(error).__name__}); copy the shard again") from error
    if not isinstance(content, dict):
        raise TraceFormatError(f"{path}: expected a dict of tensors, found {type(content).__name__}")
    return content


def _matrix(
    content: dict[str, Any], key: str, path: Path, shape: tuple[int, ...] | None = None
) -> npt.NDArray[np.float64]:
    import torch

    tensor = content.get(key)
    if not isinstance(tensor, torch.Tensor):
        raise TraceFormatError(f"{path}: no tensor {key!r}; it holds {shown_names(content)}")
    if tensor.ndim != 2 or tensor.shape[1] == 0 or tensor.is_complex() or tensor.layout != torch.strided:
        raise TraceFormatError(f"{path}, {key}: expected numbers in the shape [rows, γ], found {tuple(tensor.shape)}")
    if shape is not None and tuple(tensor.shape) != shape:
        raise TraceFormatError(f"{path}, {key}: shape {tuple(tensor.shape)}, but logits have {shape}")
    try:
        matrix: npt.NDArray[np.float64] = tensor.detach().to(torch.float64).numpy()
    except (RuntimeError, TypeError, ValueError) as error:  # quantised, on no device, over freed storage
        raise TraceFormatError(f"{path}, {key}: a tensor of type {tensor.dtype} that holds no plain numbers") from error
    return matrix


def _rounds(shard: _Shard, refused: RefusedRows) -> Rounds:
    finite = np.isfinite(shard.logits).all(axis=1)
    seen = shard.observed > 0
    refused.refuse("logit not finite", int((~finite).sum()))
    refused.refuse("no position observed", int((finite & ~seen).sum()))
    usable = finite & seen
    match = _SHARD_NAME.fullmatch(shard.path.name)
    block = Block(
        logits=shard.logits[usable],
        accepted=shard.accepted[usable],
        observed=shard.observed[usable],
        verified=shard.observed[usable],
    )
    return block_rounds(block, dataset=(match["stem"] if match else "") or "sglang")
