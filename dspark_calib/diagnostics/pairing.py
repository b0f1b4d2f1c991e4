"""Whether each round's logits stand beside its own labels.

A recorder under overlap scheduling can pair a block's confidence with the label of the block before or after.
Nothing fails: a fit then calibrates noise. The sign is that logits rank the labels of another row better.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dspark_calib.diagnostics.finding import Finding
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.judged_rows import JudgedBatch, compact
from dspark_calib.metrics.rows.passes import map_in_order

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

LAGS = (0, -3, -2, -1, 1, 2, 3)
_REACH = max(LAGS)
_BINS = 512
_QUANTILE = 4.0  # standard errors: six lags are tried, and a stop must be sure
_LIMIT = 16.0


def check_pairing(judged: JudgedTrace) -> Iterator[Finding]:
    """Find a lag at which z_1 ranks the first draft's acceptance significantly better than in place.

    Rounds are compared within their prompt only. The statistic is the AUROC of z_1 at each lag, from ranks on
    a fine scale, and the clustered standard error of its difference from lag 0.
    """
    ranks = _ranks(judged)
    if ranks is None or judged.rounds < 2 * _REACH:
        return
    auroc, influence = _by_lag(_lag_sums(judged, ranks))
    best = int(np.argmax(auroc))
    se = float(np.sqrt(((influence[best] - influence[0]) ** 2).sum()))
    if auroc[best] - auroc[0] > _QUANTILE * max(se, 1e-12):
        lag = LAGS[best]
        yield Finding(
            name="wrong_row",
            severity="stop",
            count=judged.rounds,
            message=f"logits rank the labels of the round {abs(lag)} {'later' if lag > 0 else 'earlier'} better than "
            f"their own (AUROC {auroc[best]:.3f} against {auroc[0]:.3f}); the recorder paired them with the wrong row",
        )


def _ranks(judged: JudgedTrace) -> Floats | None:
    """Return the rank of each score among all rounds, in (0, 1), or None where only one label occurs."""
    counts, accepted = np.zeros(_BINS, dtype=np.int64), 0
    for batch in judged.batches():
        counts += np.bincount(_scores(batch), minlength=_BINS)
        accepted += int((batch.accepted > 0).sum())
    if accepted in (0, judged.rounds):
        return None
    return np.asarray((np.cumsum(counts) - counts / 2) / counts.sum())


def _scores(batch: JudgedBatch) -> Integers:
    z = np.clip(batch.logits[:, 0].astype(np.float64), -_LIMIT, _LIMIT)
    return np.asarray(((z + _LIMIT) * ((_BINS - 1) / (2 * _LIMIT))).astype(np.int64))


def _lag_sums(judged: JudgedTrace, ranks: Floats) -> Floats:
    """Return rows and summed ranks by lag, cluster and label, shape [7, C, 2, 2]."""
    total = np.zeros((len(LAGS), len(judged.clusters), 2, 2))

    def summed(window: tuple[JudgedBatch, int]) -> tuple[Integers, Floats]:
        return _window_sums(*window, ranks)

    for present, part in map_in_order(summed, _windows(judged), judged.threads):
        total[:, present] += part
    return total


def _windows(judged: JudgedTrace) -> Iterator[tuple[JudgedBatch, int]]:
    """Yield each batch behind the last rows of the one before, with their number: no pair is lost or met twice."""
    before: JudgedBatch | None = None
    for batch in judged.batches():
        if before is None:
            yield batch, 0
        else:
            yield before.then(batch), len(before)
        tail = batch if before is None or len(batch) >= _REACH else before.then(batch)
        before = tail.take(slice(-_REACH, None))


def _window_sums(window: JudgedBatch, old: int, ranks: Floats) -> tuple[Integers, Floats]:
    """Return the clusters of a window, and the sums of its pairs whose later row is none of the `old` first ones."""
    rank, label = ranks[_scores(window)], (window.accepted > 0).astype(np.int64)
    present, local = compact(window.cluster)
    size, n = len(present), len(window)
    out = np.empty((len(LAGS), size, 2, 2))
    for index, lag in enumerate(LAGS):
        later = np.arange(max(old, abs(lag)), n)
        earlier = later - abs(lag)
        scored, labelled = (earlier, later) if lag > 0 else (later, earlier)
        same = local[scored] == local[labelled]
        cell = local[scored][same] * 2 + label[labelled][same]
        out[index, :, :, 0] = np.bincount(cell, minlength=size * 2).reshape(size, 2)
        out[index, :, :, 1] = np.bincount(cell, weights=rank[scored][same], minlength=size * 2).reshape(size, 2)
    return present, out


def _by_lag(sums: Floats) -> tuple[Floats, Floats]:
    """Return the AUROC of z_1 of row i against the label of row i + lag, [7], and each prompt's influence, [7, C].

    With ranks in (0, 1) over all rows it is ½ + mean rank of positives - mean rank of negatives.
    """
    rows, ranks = sums[..., 0], sums[..., 1]
    total = rows.sum(axis=1)
    mean = ranks.sum(axis=1) / np.maximum(total, 1)
    deviation = (ranks - mean[:, None] * rows) / np.maximum(total, 1)[:, None]
    both = (total > 0).all(axis=1)
    auroc = np.where(both, 0.5 + mean[:, 1] - mean[:, 0], 0.5)
    return auroc, np.where(both[:, None], deviation[..., 1] - deviation[..., 0], 0.0)
