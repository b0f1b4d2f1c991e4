"""Whether the rows of a position can tell one temperature from another."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.rows import FitRows
from dspark_calib.survival import sigmoid

Floats = npt.NDArray[np.float64]

FEW_POSITIVES = 50
_SLOPE_QUANTILE = 1.6448536269514722  # one-sided 95 %
_SCORE_QUANTILE = 3.0  # two-sided 99.7 %: seven positions are asked, and a false yes harms held-out prompts
NEWTON_STEPS = 6
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
    """Count every position in one pass."""
    sums = _Moments(np.zeros((rows.gamma, rows.clusters, 5)), np.zeros((rows.gamma, 2), dtype=np.int64))
    for block in rows.whole_blocks():
        for k in range(rows.gamma):
            judged = (block.observed > k) & (block.accepted >= k)
            seen = judged if rows.view == "conditional" else block.observed > k
            accepted = block.accepted > k
            sums.labels[k] += [int((seen & ~accepted).sum()), int((seen & accepted).sum())]
            z = np.clip(block.logits[judged, k].astype(np.float64), -_LOGIT_LIMIT, _LOGIT_LIMIT)
            y, local = accepted[judged].astype(np.float64), block.local[judged]
            for column, values in enumerate((np.ones_like(z), z, y, z * y, (sigmoid(z) - y) * z)):
                part = np.bincount(local, weights=values, minlength=len(block.present))
                sums.moments[k, block.present, column] += part
    likely = _likely_temperatures(rows)
    return tuple(_facts(sums.moments[k], sums.labels[k], float(likely[k])) for k in range(rows.gamma))


def _likely_temperatures(rows: FitRows) -> Floats:
    """Maximise the likelihood Σ y log σ(βz) + (1-y) log σ(-βz) in β = 1/T by Newton's method; it is concave in β."""
    beta = np.ones(rows.gamma)
    for _ in range(NEWTON_STEPS):
        gradient, curvature = np.zeros(rows.gamma), np.zeros(rows.gamma)
        for block in rows.whole_blocks():
            for k in range(rows.gamma):
                judged = (block.observed > k) & (block.accepted >= k)
                z = np.clip(block.logits[judged, k].astype(np.float64), -_LOGIT_LIMIT, _LOGIT_LIMIT)
                c = sigmoid(beta[k] * z)
                gradient[k] += ((c - (block.accepted[judged] > k)) * z).sum()
                curvature[k] += (c * (1 - c) * z * z).sum()
        step = np.divide(gradient, curvature, out=np.zeros(rows.gamma), where=curvature > 0)
        # Halving and doubling at most keeps Newton from leaping past the optimum where the curve is flat.
        beta = np.clip(beta - step, beta / 2, beta * 2).clip(0.125, 8.0)
    return np.asarray(1.0 / beta)


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
