"""From judged blocks on the device to rounds in trace order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dspark_calib.collection.blocks import JudgedBlocks
from dspark_calib.collection.confidence_source import proxy_logits
from dspark_calib.collection.labels import count_observed
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.errors import CheckpointError, UnsupportedModel
from dspark_calib.trace.labels import Labels
from dspark_calib.trace.rounds import NO_DRAFT_LOGIT, Rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnchors:
    """n judged blocks and where they stand, on the device.

    Attributes:
        rows: Sequence in the batch, int64 [n].
        replicates: Trajectory, int64 [n].
        anchors: t, int64 [n].
        open: bool [n]; False for fillers, which are no rounds.
        blocks: What was judged.
    """

    rows: Tensor
    replicates: Tensor
    anchors: Tensor
    open: Tensor
    blocks: JudgedBlocks


def assemble_rounds(sequences: Sequence[ResponseSequence], parts: Sequence[JudgedAnchors], confidence: str) -> Rounds:
    """Join judged blocks into rounds: sequence, replicate, anchor.

    Args:
        sequences: The batch.
        parts: What was judged, in any order; at least one.
        confidence: `head` or a proxy.

    Raises:
        CheckpointError: If a confidence logit is not finite.
    """
    chosen = _open_in_trace_order(parts)

    def column(get: Callable[[JudgedAnchors], Tensor]) -> npt.NDArray[Any]:
        return _fetch(parts, get)[chosen]

    rows, accepted = column(lambda p: p.rows), column(lambda p: p.blocks.accepted)
    anchors, verified = column(lambda p: p.anchors), column(lambda p: p.blocks.verified)
    ends = np.array([len(s.token_ids) for s in sequences], dtype=np.int64)[rows]
    by_stop = np.array([s.ending == "eos" for s in sequences])[rows]
    logprobs, margins = column(lambda p: p.blocks.logprobs), column(lambda p: p.blocks.margins)
    entropies = column(lambda p: p.blocks.entropies)
    if confidence == "head":
        logits = column(lambda p: _head_logits(p.blocks))
        _refuse_not_finite(logits, rows, anchors, sequences)
    else:
        logits = proxy_logits(confidence, logprobs, margins, entropies)
    # A slot after the block's end has no draft: no token, no proxy, and a confidence no scheduler would verify.
    absent = np.arange(logits.shape[1]) >= verified[:, None]
    return Rounds(
        dataset=_labels([s.dataset for s in sequences], rows),
        domain=_labels([s.domain for s in sequences], rows),
        prompt_id=_labels([s.prompt_id for s in sequences], rows),
        ending=_labels([s.ending for s in sequences], rows),
        replicate=column(lambda p: p.replicates).astype(np.int16),
        prompt_length=np.array([s.prompt_length for s in sequences], dtype=np.int32)[rows],
        response_length=np.array([s.response_length for s in sequences], dtype=np.int32)[rows],
        anchor=anchors.astype(np.int32),
        confidence_logits=np.where(absent, np.float32(NO_DRAFT_LOGIT), logits),
        accepted=accepted.astype(np.int16),
        observed=count_observed(accepted, ends - 1 - anchors, verified, by_stop),
        verified=verified.astype(np.int16),
        draft_tokens=np.where(absent, -1, column(lambda p: p.blocks.draft_tokens)).astype(np.int32),
        draft_logprobs=np.where(absent, np.float32(np.nan), logprobs),
        draft_margin=np.where(absent, np.float32(np.nan), margins),
        draft_entropy=np.where(absent, np.float32(np.nan), entropies),
        acceptance_probs=column(lambda p: p.blocks.acceptance_probs),
    )


def empty_rounds(gamma: int) -> Rounds:
    """Return no rounds, with every column."""
    block, scalar = np.empty((0, gamma), np.float32), np.empty(0, np.int32)
    none = Labels.constant(None, 0)
    return Rounds(
        dataset=none,
        domain=none,
        prompt_id=none,
        ending=none,
        replicate=scalar.astype(np.int16),
        prompt_length=scalar,
        response_length=scalar,
        anchor=scalar,
        confidence_logits=block,
        accepted=scalar.astype(np.int16),
        observed=scalar.astype(np.int16),
        verified=scalar.astype(np.int16),
        draft_tokens=block.astype(np.int32),
        draft_logprobs=block,
        draft_margin=block,
        draft_entropy=block,
        acceptance_probs=block,
    )


def _open_in_trace_order(parts: Sequence[JudgedAnchors]) -> npt.NDArray[np.int64]:
    """Return the indices of real rounds, by sequence, replicate, anchor."""
    keys = [_fetch(parts, get) for get in (lambda p: p.anchors, lambda p: p.replicates, lambda p: p.rows)]
    order = np.lexsort(keys)
    chosen: npt.NDArray[np.int64] = order[_fetch(parts, lambda p: p.open)[order]]
    return chosen


def _fetch(parts: Sequence[JudgedAnchors], get: Callable[[JudgedAnchors], Tensor]) -> npt.NDArray[Any]:
    return torch.cat([get(part) for part in parts]).cpu().numpy()


def _head_logits(blocks: JudgedBlocks) -> Tensor:
    if blocks.confidence_logits is None:
        raise UnsupportedModel("the drafter says it has a confidence head but gave no confidence logits")
    return blocks.confidence_logits


def _labels(values: Sequence[str | None], rows: npt.NDArray[np.int64]) -> Labels:
    return Labels.encode(values).take(rows)


def _refuse_not_finite(
    logits: npt.NDArray[np.float32],
    rows: npt.NDArray[np.int64],
    anchors: npt.NDArray[np.int64],
    sequences: Sequence[ResponseSequence],
) -> None:
    broken = ~np.isfinite(logits)
    if broken.any():
        row, slot = (int(i) for i in np.argwhere(broken)[0])
        sequence = sequences[int(rows[row])]
        raise CheckpointError(
            f"dataset {sequence.dataset}, prompt {sequence.prompt_id}, anchor {anchors[row]}, position {slot + 1}: "
            f"the confidence head gave {logits[row, slot]}; run in float32, and check the drafter's checkpoint"
        )
