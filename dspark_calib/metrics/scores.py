"""The records of a table of measures: shapes only, filled by `scoring`. Absent numbers are None, never NaN."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import BinSums
from dspark_calib.metrics.corp import Decomposition
from dspark_calib.metrics.estimate import Estimate

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionScores:
    """Measures of one view at one draft position.

    Attributes:
        position: k, from 1.
        n: Rounds with a label here; in a composed view those on the judged range.
        positives: Those with label 1; in a composed view the sum of known and composed labels.
        clusters: Prompts (or stand-ins) with a round here.
        predicted_sum: Sum of predicted probabilities.
        ece: Expected calibration error, DeepSpec's rule; basic interval.
        ece_floor: Mean ECE of a perfectly calibrated drafter with these rounds and prompts.
        ece_floor_high: Its 95 % quantile.
        ece_at_floor: Whether the ECE cannot be told from perfect calibration (it is not above that quantile).
        ece_squared_debiased: Debiased squared error; negative values are legal. In a composed view the variance
            that is taken out comes from the prompts.
        smooth_ece: Bin-free calibration error.
        bias: Predicted minus observed mean; positive is overconfident. Percentile interval.
        brier: Mean squared error.
        log_loss: Mean negative log likelihood in nats, from logits.
        auroc: P(an accepted round ranks above a rejected one), ties ½; clustered DeLong interval.
        corp: The Brier score taken apart.
        bins: The reliability diagram.
        missing: Why numbers are absent: `no rounds`, `not judged`, `single class`, `one prompt`; else None.
    """

    position: int
    n: int
    positives: float
    clusters: int
    predicted_sum: float
    ece: Estimate
    ece_floor: float | None
    ece_floor_high: float | None
    ece_at_floor: bool | None
    ece_squared_debiased: float | None
    smooth_ece: float | None
    bias: Estimate
    brier: Estimate
    log_loss: Estimate
    auroc: Estimate
    corp: Decomposition | None
    bins: BinSums
    missing: str | None

    @property
    def predicted_mean(self) -> float | None:
        """Mean predicted probability."""
        return self.predicted_sum / self.n if self.n else None

    @property
    def observed_mean(self) -> float | None:
        """Observed rate."""
        return self.positives / self.n if self.n else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDraws:
    """Bootstrap replicates of the cumulative view; NaN where undefined.

    Replicate r weighs each prompt alike in every evaluation with the same seed, so that differences of two
    records' replicates are paired on the prompts they share.

    Attributes:
        ece: Shape [R, γ].
        bias: Shape [R, γ].
        brier: Shape [R, γ].
        mean_ece: Mean over the positions that have an ECE, shape [R].
        auroc_moves: By how much each cluster moves the AUROC, per position, [C] or None; see `cluster_deviations`.
    """

    ece: Floats
    bias: Floats
    brier: Floats
    mean_ece: Floats
    auroc_moves: tuple[Floats | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """All positions under one set of temperatures.

    Attributes:
        cumulative: Prefix survival a_k against prefix acceptance, per position.
        conditional: Confidence c_k among rounds whose draft k was judged, per position.
        mean_ece: Mean cumulative ECE over the positions that have one; basic interval.
        mean_ece_floor: Mean of their floors.
        draws: Replicates behind the intervals.
        composed: Whether a scheduler cut rounds, so that labels of `cumulative` that it held back are composed from
            the conditional curve.
    """

    cumulative: tuple[PositionScores, ...]
    conditional: tuple[PositionScores, ...]
    mean_ece: Estimate
    mean_ece_floor: float | None
    draws: ScoreDraws
    composed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """Calibrated minus raw over the same rounds and replicates, cumulative view; negative ECE is better.

    Attributes:
        ece: Per position.
        bias: Per position.
        brier: Per position.
        auroc: Per position.
        mean_ece: Over positions.
    """

    ece: tuple[Estimate, ...]
    bias: tuple[Estimate, ...]
    brier: tuple[Estimate, ...]
    auroc: tuple[Estimate, ...]
    mean_ece: Estimate
