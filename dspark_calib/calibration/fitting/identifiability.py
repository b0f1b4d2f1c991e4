"""Whether the rows of a position can tell one temperature from another."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.calibration.rows.row_blocks import RowBlock
from dspark_calib.metrics.bins import summed_rows
from dspark_calib.metrics.rows.scored_rows import View
from dspark_calib.survival import sigmoid

Floats = npt.NDArray[np.float64]

FEW_POSITIVES = 50
_SLOPE_QUANTILE = 1.6448536269514722  # one-sided 95 %
_SCORE_QUANTILE = 3.0  # two-sided 99.7 %: seven positions are asked, and a false yes harms held-out prompts
NEWTON_STEPS = 6
_FINE_BINS = 8192
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
    sums = rows.over_rounds(SurveyPass(view=rows.view, gamma=rows.gamma, clusters=rows.clusters))
    return tuple(_facts(sums.moments[k], sums.labels[k], _likely_temperature(sums, k)) for k in range(rows.gamma))


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveySums:
    """What the survey of a block or of all rows counted.

    Attributes:
        moments: Of the judged rows by position and cluster: rows, Σz, Σy, Σzy and Σ(c - y)z, float64 [γ, c, 5].
        labels: Rows with label 0 and 1 in the view, int64 [γ, 2].
        fine: Judged rows and their Σz in fine bins of z, float64 [γ, 2, 8192].
    """

    moments: Floats
    labels: npt.NDArray[np.int64]
    fine: Floats

    @classmethod
    def zeros(cls, gamma: int, clusters: int) -> "SurveySums":
        """Return sums of no rows."""
        return cls(
            moments=np.zeros((gamma, clusters, 5)),
            labels=np.zeros((gamma, 2), dtype=np.int64),
            fine=np.zeros((gamma, 2, _FINE_BINS)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyPass:
    """Surveys all positions.

    Attributes:
        view: Which labels count.
        gamma: γ.
        clusters: c.
    """

    view: View
    gamma: int
    clusters: int

    def zero(self) -> SurveySums:
        """Return sums of no rows."""
        return SurveySums.zeros(self.gamma, self.clusters)

    def part(self, block: RowBlock) -> tuple[RowBlock, SurveySums]:
        """Survey a block over its own clusters."""
        size = len(block.present)
        found = SurveySums.zeros(self.gamma, size)
        for k in range(self.gamma):
            judged = (block.observed > k) & (block.accepted >= k)
            seen = judged if self.view == "conditional" else block.observed > k
            accepted = block.accepted > k
            found.labels[k] = (seen & ~accepted).sum(), (seen & accepted).sum()
            z = np.clip(block.logits[judged, k].astype(np.float64), -_LOGIT_LIMIT, _LOGIT_LIMIT)
            y, ones = accepted[judged].astype(np.float64), np.ones(len(z))
            values = np.stack([ones, z, y, z * y, (sigmoid(z) - y) * z], axis=1)
            found.moments[k] = summed_rows(block.local[judged], values, size)
            place = ((z + _LOGIT_LIMIT) * ((_FINE_BINS - 1) / (2 * _LOGIT_LIMIT))).astype(np.int32)
            found.fine[k] = summed_rows(place, values[:, :2], _FINE_BINS).T
        return block, found

    def add(self, total: SurveySums, part: tuple[RowBlock, SurveySums]) -> None:
        """Add a block."""
        block, found = part
        total.moments[:, block.present] += found.moments
        total.labels[:] += found.labels
        total.fine[:] += found.fine

    def merge(self, total: SurveySums, other: SurveySums) -> None:
        """Add the sums of other rows."""
        total.moments[:] += other.moments
        total.labels[:] += other.labels
        total.fine[:] += other.fine


def _likely_temperature(sums: SurveySums, k: int) -> float:
    """Maximise the likelihood Σ y log σ(βz) + (1-y) log σ(-βz) in β = 1/T by Newton's method; it is concave in β.

    Σ σ(βz) z is taken over fine bins at their mean z, off by about 10⁻⁶ of itself; Σ yz is exact.
    """
    rows, total = sums.fine[k]
    n, mean = rows[rows > 0], total[rows > 0] / rows[rows > 0]
    accepted, beta = float(sums.moments[k, :, 3].sum()), 1.0
    for _ in range(NEWTON_STEPS):
        c = sigmoid(beta * mean)
        gradient, curvature = float((n * c * mean).sum()) - accepted, float((n * c * (1 - c) * mean**2).sum())
        step = gradient / curvature if curvature > 0 else 0.0
        # Halving and doubling at most keeps Newton from leaping past the optimum where the curve is flat.
        beta = min(max(beta - step, beta / 2, 0.125), beta * 2, 8.0)
    return 1.0 / beta


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
