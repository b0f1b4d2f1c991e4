"""Composed measures the slow way: row by row, in plain Python, from any weights on the prompts."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.sums.composed import MIN_JUDGED
from dspark_calib.survival import confidence
from dspark_calib.trace import Rounds

Floats = npt.NDArray[np.float64]


def cut_below(full: Rounds, thresholds: npt.ArrayLike) -> Rounds:
    """Return the rounds as verified up to the first c_k below the round's threshold (never before draft 1)."""
    below = confidence(full.confidence_logits) < np.broadcast_to(thresholds, len(full))[:, None]
    below[:, 0] = False
    sent = np.where(below.any(axis=1), below.argmax(axis=1), full.gamma).astype(np.int16)
    return replace(full, observed=sent, verified=sent, accepted=np.minimum(full.accepted, sent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomposed:
    """Measures of one position; None where no row is on the judged range."""

    n: float
    ece: float
    bias: float
    brier: float
    auroc: float


def recompose(rounds: Rounds, weights: Floats, bins: int, judged_with: Floats | None = None) -> list[Recomposed | None]:
    """Return the measures of each position.

    Args:
        rounds: Every cut one is short and none is ended by its text.
        weights: Of each row.
        bins: Equal-width bins.
        judged_with: Weights that decide which bins were judged; those of the rows if None.
    """
    c = confidence(rounds.confidence_logits).astype(np.float64).tolist()
    accepted, observed = rounds.accepted.tolist(), rounds.observed.tolist()
    place = [[min(int(min(max(v, 1e-8), 1 - 1e-8) * bins), bins - 1) for v in row] for row in c]
    rates = _rates(place, accepted, observed, weights.tolist(), bins)
    judged = rates if judged_with is None else _rates(place, accepted, observed, judged_with.tolist(), bins)
    found: list[Recomposed | None] = []
    for k in range(rounds.gamma):
        rows = [i for i in range(len(c)) if all(judged[j][place[i][j]][1] >= MIN_JUDGED for j in range(k + 1))]
        labels, p = [], []
        for i in rows:
            label = 1.0
            for j in range(k + 1):
                if j < observed[i]:
                    label *= float(accepted[i] > j)
                elif label > 0:
                    good, n = rates[j][place[i][j]]
                    label *= good / n if n else judged[j][place[i][j]][0] / judged[j][place[i][j]][1]
            labels.append(label)
            p.append(min(max(float(np.prod(c[i][: k + 1])), 1e-8), 1 - 1e-8))
        found.append(_measures(np.array(p), np.array(labels), weights[rows], bins) if rows else None)
    return found


def _rates(
    place: list[list[int]], accepted: list[int], observed: list[int], weights: list[float], bins: int
) -> list[list[tuple[float, float]]]:
    table = [[(0.0, 0.0)] * bins for _ in place[0]]
    for row, y, seen, w in zip(place, accepted, observed, weights, strict=True):
        for j in range(min(seen, y + 1)):
            good, n = table[j][row[j]]
            table[j][row[j]] = (good + w * (y > j), n + w)
    return table


def _measures(p: Floats, label: Floats, w: Floats, bins: int) -> Recomposed:
    index = np.minimum((p * bins).astype(int), bins - 1)
    ece = sum(abs((w * (p - label))[index == b].sum()) for b in range(bins)) / w.sum()
    brier = (w * (label * (1 - p) ** 2 + (1 - label) * p**2)).sum() / w.sum()
    order = np.argsort(p)
    positive, negative = (w * label)[order], (w * (1 - label))[order]
    below = np.cumsum(negative) - negative / 2  # no two rows share a prediction
    auroc = (positive * below).sum() / (positive.sum() * negative.sum())
    bias = (w * (p - label)).sum() / w.sum()
    return Recomposed(n=len(p), ece=float(ece), bias=float(bias), brier=float(brier), auroc=float(auroc))
