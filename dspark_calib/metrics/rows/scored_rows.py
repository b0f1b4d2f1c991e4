"""Rows of a batch with their predictions and labels, in either view.

Cumulative: prefix survival a_k against prefix acceptance. Conditional: confidence c_k among the rounds whose draft
k was judged.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.ranking import score_bins
from dspark_calib.metrics.rows.judged_rows import JudgedBatch, compact
from dspark_calib.survival import scaled_logits

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

View = Literal["cumulative", "conditional"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPosition:
    """The rows of one batch that carry a label at one position; arrays of shape [n].

    Attributes:
        predicted: Probability, float64.
        log_survival: Its logarithm, a sum of log-sigmoids.
        score: Score bin for ranks.
        label: 0 or 1.
        local: Index into the clusters of the batch.
    """

    predicted: Floats
    log_survival: Floats
    score: Integers
    label: Integers
    local: Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRows:
    """One batch scored in one view.

    Attributes:
        present: Clusters of the batch, shape [c].
        positions: Its rows, position by position.
    """

    present: Integers
    positions: tuple[ScoredPosition, ...]


def score_rows(batch: JudgedBatch, view: View, temperatures: npt.ArrayLike | None) -> ScoredRows:
    """Score one batch.

    Args:
        batch: n rounds.
        view: `cumulative` or `conditional`.
        temperatures: Shape [γ], or [C, γ] to give each cluster its own (held-out) temperatures, or None for 1.
    """
    log_c, c = _log_and_plain_confidence(batch, temperatures)
    if view == "cumulative":
        np.cumsum(log_c, axis=0, out=log_c)
        np.cumprod(c, axis=0, out=c)
    present, local = compact(batch.cluster)
    positions = []
    for k in range(len(c)):
        rows = batch.observed > k
        if view == "conditional":
            rows &= batch.accepted >= k
        chosen = slice(None) if rows.all() else rows
        s = log_c[k][chosen]
        positions.append(
            ScoredPosition(
                predicted=c[k][chosen],
                log_survival=s,
                score=score_bins(s),
                label=(batch.accepted[chosen] > k).astype(np.int64),
                local=local[chosen],
            )
        )
    return ScoredRows(present=present, positions=tuple(positions))


def _log_and_plain_confidence(batch: JudgedBatch, temperatures: npt.ArrayLike | None) -> tuple[Floats, Floats]:
    """Return log c and c, shape [γ, n]; one exponential serves both (see `survival.sigmoid`, `log_sigmoid`)."""
    z = _scaled(batch, temperatures)
    e = np.exp(-np.abs(z))
    c = np.where(z >= 0, 1.0, e) / (1.0 + e)
    return np.minimum(z, 0.0) - np.log1p(e), c


def confidences(batch: JudgedBatch, temperatures: npt.ArrayLike | None) -> Floats:
    """Return c_k of every round, shape [γ, n]."""
    return _log_and_plain_confidence(batch, temperatures)[1]


def _scaled(batch: JudgedBatch, temperatures: npt.ArrayLike | None) -> Floats:
    t = None if temperatures is None else np.asarray(temperatures, dtype=np.float64)
    if t is not None and t.ndim == 2:
        return np.ascontiguousarray((batch.logits.astype(np.float64) / t[batch.cluster]).T)
    return np.ascontiguousarray(scaled_logits(batch.logits, t).T)
