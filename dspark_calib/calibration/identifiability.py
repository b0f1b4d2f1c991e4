"""Whether the rows of a position can tell one temperature from another."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.rows import FitRows, RowBlock
from dspark_calib.metrics.passes import map_in_order
from dspark_calib.metrics.view_sums import View
from dspark_calib.survival import sigmoid

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

FEW_POSITIVES = 50
_SLOPE_QUANTILE = 1.6448536269514722  # one-sided 95 %
_SCORE_QUANTILE = 3.0  # two-sided 99.7 %: seven positions are asked, and a false yes harms held-out prompts
NEWTON_STEPS = 6
LIKELIHOOD_ROWS = 1_000_000
_LOGIT_LIMIT = 30.0  # a logit beyond says no more about the slope


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionFacts:
    """Counts of one position and whether its logits tell accepted from rejected drafts.

    Attributes:
        n: Rows with a label in the view of the fit.
        positives: Those with label 1.
        slope_z: Clustered z statistic of the covariance of z_k and acceptance among rounds whose draft k was judged;
            NaN where there are fewer than two clusters or one class.
        score_z: Clustered z statistic of Σ(c_k - y) z_k, the slope of the log loss in log T at T = 1 among the same
            rounds: positive where the head is overconfident. NaN with fewer than two clusters.
        likely_temperature: The T_k of greatest likelihood of the judged labels, within the default grid.
    """

    n: int
    positives: int
    slope_z: float
    score_z: float
    likely_temperature: float

    @property
    def needs_temperature(self) -> bool:
        """Whether the data speak against T = 1; a fit that cannot say so follows noise."""
        return not abs(self.score_z) < _SCORE_QUANTILE

    @property
    def flags(self) -> tuple[str, ...]:
        """Why a fit would mean nothing here; empty where it would not."""
        if self.n == 0:
            return ("no_rounds",)
        if self.positives in (0, self.n):
            return ("single_class",)
        few = min(self.positives, self.n - self.positives) < FEW_POSITIVES
        unidentified = self.slope_z < _SLOPE_QUANTILE
        return tuple(name for name, on in (("few_positives", few), ("unidentified", unidentified)) if on)


def survey_positions(rows: FitRows) -> tuple[PositionFacts, ...]:
    """Count every position in one pass, and find the likeliest temperatures."""
    sums = _Moments(np.zeros((rows.gamma, rows.clusters, 5)), np.zeros((rows.gamma, 2), dtype=np.int64))

    def surveyed(block: RowBlock) -> tuple[RowBlock, _Moments]:
        return block, _block_moments(block, rows.view)

    for block, part in map_in_order(surveyed, rows.whole_blocks(), rows.threads):
        sums.moments[:, block.present] += part.moments
        sums.labels[:] += part.labels
    likely = _likely_temperatures(rows)
    return tuple(_facts(sums.moments[k], sums.labels[k], float(likely[k])) for k in range(rows.gamma))


def _block_moments(block: RowBlock, view: View) -> "_Moments":
    gamma, clusters = block.logits.shape[1], len(block.present)
    moments, labels = np.zeros((gamma, clusters, 5)), np.zeros((gamma, 2), dtype=np.int64)
    for k in range(gamma):
        judged = (block.observed > k) & (block.accepted >= k)
        seen = judged if view == "conditional" else block.observed > k
        accepted = block.accepted > k
        labels[k] = (seen & ~accepted).sum(), (seen & accepted).sum()
        z, y, local = _clipped(block.logits[judged, k]), accepted[judged].astype(np.float64), block.local[judged]
        for column, values in enumerate((np.ones_like(z), z, y, z * y, (sigmoid(z) - y) * z)):
            moments[k, :, column] = np.bincount(local, weights=values, minlength=clusters)
    return _Moments(moments, labels)


def _likely_temperatures(rows: FitRows) -> Floats:
    """Maximise the likelihood Σ y log σ(βz) + (1-y) log σ(-βz) in β = 1/T by Newton's method; it is concave in β.

    Of many rows every s-th one is looked at, about 10⁶ in all: each prompt keeps its share.
    """
    judged = _judged_logits(rows)
    beta = np.ones(rows.gamma)
    for _ in range(NEWTON_STEPS):
        for k, (z, y) in enumerate(judged):
            c = sigmoid(beta[k] * z)
            gradient, curvature = float(((c - y) * z).sum()), float((c * (1 - c) * z * z).sum())
            step = gradient / curvature if curvature > 0 else 0.0
            # Halving and doubling at most keeps Newton from leaping past the optimum where the curve is flat.
            beta[k] = min(max(beta[k] - step, beta[k] / 2, 0.125), beta[k] * 2, 8.0)
    return np.asarray(1.0 / beta)


def _judged_logits(rows: FitRows) -> list[tuple[Floats, Booleans]]:
    """Return z_k and whether draft k was accepted, of the rows looked at whose draft k was judged, by position."""
    stride = -(-int(rows.total) // LIKELIHOOD_ROWS) or 1
    blocks = [(b.logits[::stride], b.accepted[::stride], b.observed[::stride]) for b in rows.whole_blocks()]
    logits, accepted, observed = (np.concatenate(column) for column in zip(*blocks, strict=True))
    found = []
    for k in range(rows.gamma):
        judged = (observed > k) & (accepted >= k)
        found.append((_clipped(logits[judged, k]), accepted[judged] > k))
    return found


def _clipped(logits: npt.NDArray[np.float32]) -> Floats:
    return np.clip(logits.astype(np.float64), -_LOGIT_LIMIT, _LOGIT_LIMIT)


@dataclass(frozen=True, slots=True)
class _Moments:
    moments: Floats  # [γ, C, 5]: rows, Σz, Σy, Σzy, Σ(c - y)z of the judged rows
    labels: npt.NDArray[np.int64]  # [γ, 2]


def _facts(moments: Floats, labels: npt.NDArray[np.int64], likely: float) -> PositionFacts:
    return PositionFacts(
        n=int(labels.sum()),
        positives=int(labels[1]),
        slope_z=_slope_z(moments),
        score_z=_clustered_z(moments[:, 4], moments[:, 0]),
        likely_temperature=likely,
    )


def _slope_z(moments: Floats) -> float:
    rows, z, y, zy, _ = moments.T
    if rows.sum() == 0:
        return float("nan")
    mean_z, mean_y = z.sum() / rows.sum(), y.sum() / rows.sum()
    score = zy - mean_z * y - mean_y * z + rows * mean_z * mean_y
    return _clustered_z(score, rows)


def _clustered_z(score: Floats, rows: Floats) -> float:
    """Return Σ score over its standard deviation from clusters, both of shape [C]."""
    clusters = int((rows > 0).sum())
    if clusters < 2:
        return float("nan")
    spread = np.sqrt((score**2).sum() * clusters / (clusters - 1))
    return float(score.sum() / spread) if spread > 0 else 0.0
