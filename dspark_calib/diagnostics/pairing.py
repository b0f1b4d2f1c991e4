"""Whether each round's logits stand beside its own labels.

A recorder under overlap scheduling can pair a block's confidence with the label of the block before or after.
Nothing fails: a fit then calibrates noise. The sign is that logits rank the labels of another row better.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dspark_calib.diagnostics.finding import Finding
from dspark_calib.metrics.bins import weighted_counts
from dspark_calib.metrics.judged import JudgedTrace

Floats = npt.NDArray[np.float64]

LAGS = (-3, -2, -1, 1, 2, 3)
_BINS = 512
_QUANTILE = 4.0  # standard errors: six lags are tried, and a stop must be sure
_LIMIT = 16.0


def check_pairing(judged: JudgedTrace) -> Iterator[Finding]:
    """Find a lag at which z_1 ranks the first draft's acceptance significantly better than in place.

    Rounds are compared within their prompt only. The statistic is the AUROC of z_1 at each lag, from ranks on
    a fine scale, and the clustered standard error of its difference from lag 0.
    """
    ranks = _Ranks.of(judged)
    if ranks is None:
        return
    own, _ = ranks.at(0)
    best = max(LAGS, key=lambda lag: ranks.at(lag)[0])
    value, influence = ranks.at(best)
    se = float(np.sqrt(((influence - ranks.at(0)[1]) ** 2).sum()))
    if value - own > _QUANTILE * max(se, 1e-12):
        yield Finding(
            name="wrong_row",
            severity="stop",
            count=judged.rounds,
            message=f"logits rank the labels of the round {abs(best)} {'later' if best > 0 else 'earlier'} better than "
            f"their own (AUROC {value:.3f} against {own:.3f}); the recorder paired them with the wrong row",
        )


class _Ranks:
    """Rank of z_1 among all rounds, the label of draft 1 and the prompt of each round."""

    def __init__(
        self, rank: Floats, label: npt.NDArray[np.bool_], cluster: npt.NDArray[np.int32], clusters: int
    ) -> None:
        self._rank, self._label, self._cluster, self._clusters = rank, label, cluster, clusters

    @classmethod
    def of(cls, judged: JudgedTrace) -> "_Ranks | None":
        scores, labels, clusters = [], [], []
        for batch in judged.batches():
            z = np.clip(batch.logits[:, 0].astype(np.float64), -_LIMIT, _LIMIT)
            scores.append(((z + _LIMIT) * (_BINS - 1) / (2 * _LIMIT)).astype(np.int16))
            labels.append(batch.accepted > 0)
            clusters.append(batch.cluster)
        score, label = np.concatenate(scores), np.concatenate(labels)
        if len(score) < 2 * max(map(abs, LAGS)) or label.all() or not label.any():
            return None
        counts = np.bincount(score, minlength=_BINS)
        rank = (np.cumsum(counts) - counts / 2) / counts.sum()
        return cls(rank[score], label, np.concatenate(clusters), len(judged.clusters))

    def at(self, lag: int) -> tuple[float, Floats]:
        """Return the AUROC of z_1 of row i against the label of row i + lag, and each prompt's influence on it."""
        n = len(self._rank)
        first, second = slice(max(0, -lag), n - max(0, lag)), slice(max(0, lag), n - max(0, -lag))
        same = self._cluster[first] == self._cluster[second]
        rank, label, cluster = self._rank[first][same], self._label[second][same], self._cluster[first][same]
        if label.all() or not label.any():
            return 0.5, np.zeros(self._clusters)
        # With ranks in (0, 1) over all rows: AUROC = ½ + mean rank of positives - mean rank of negatives, over 2·½.
        positive, negative = rank[label], rank[~label]
        auroc = 0.5 + (positive.mean() - negative.mean())
        gained = weighted_counts(cluster[label], positive - positive.mean(), self._clusters) / len(positive)
        lost = weighted_counts(cluster[~label], negative - negative.mean(), self._clusters) / len(negative)
        return float(auroc), gained - lost
