"""Numbers about one set of rounds: measures of its confidences and what the target accepted.

The shapes only. A number that does not exist is None, never NaN. Positions are 1-based, tuples
over positions have length γ, probabilities are fractions.
"""

from dataclasses import dataclass

from dspark_calib.metrics.acceptance import Acceptance
from dspark_calib.metrics.corp import Decomposition
from dspark_calib.metrics.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """One bin of a reliability diagram; means are None where nothing fell in.

    Attributes:
        low: Lower edge of the bin, a probability.
        high: Upper edge.
        n: Rounds in the bin.
        predicted: Mean predicted prefix survival.
        observed: Observed prefix acceptance, with its clustered interval.
    """

    low: float
    high: float
    n: int
    predicted: float | None
    observed: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalMeasures:
    """Everything measured of the confidence c_k at one position, among rounds whose draft k was judged.

    Attributes:
        n: Such rounds; where a scheduler cut rounds they describe the judged ones only.
        positives: Those whose draft k was accepted.
        predicted_mean: Mean confidence.
        observed_mean: Conditional acceptance.
        ece: Expected calibration error, basic bootstrap interval.
        ece_floor: Mean ECE of a perfectly calibrated drafter with as many rounds and prompts.
        ece_at_floor: Whether the ECE cannot be told from that of perfect calibration.
        ece_squared_debiased: Debiased squared error; negative values are legal.
        smooth_ece: Binless ECE.
        bias: Predicted minus observed mean; positive is overconfident.
        brier: Mean squared error of c_k.
        log_loss: Mean negative log likelihood of c_k, nats.
        corp: The Brier score taken apart, or None.
        missing: Why numbers are absent here, or None.
    """

    n: int
    positives: int
    predicted_mean: float | None
    observed_mean: float | None
    ece: Estimate
    ece_floor: float | None
    ece_at_floor: bool | None
    ece_squared_debiased: float | None
    smooth_ece: float | None
    bias: Estimate
    brier: Estimate
    log_loss: Estimate
    corp: Decomposition | None
    missing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionMeasures:
    """Everything measured of prefix survival a_k at one draft position.

    Attributes:
        position: k, from 1.
        n: Rounds whose label is known here; where a scheduler cut rounds, those whose c_1 … c_k all lie in bins that
            were judged, and labels that it held back are composed from the conditional curve.
        positives: Rounds whose first k drafts were accepted (composed labels count in part).
        predicted_mean: Mean predicted survival.
        observed_mean: Observed prefix acceptance.
        ece: Expected calibration error (DeepSpec's rule), basic bootstrap interval.
        ece_floor: Mean ECE of a perfectly calibrated drafter with as many rounds and prompts.
        ece_at_floor: Whether the ECE cannot be told from that of perfect calibration.
        ece_squared_debiased: Debiased squared error; negative values are legal.
        smooth_ece: Binless ECE (Błasiok & Nakkiran 2023).
        bias: Predicted minus observed mean; positive is overconfident.
        auroc: Of a_k against prefix acceptance.
        auroc_conditional: Of c_k among rounds whose first k-1 drafts were accepted.
        brier: Mean squared error of a_k.
        log_loss: Mean negative log likelihood of a_k, nats.
        corp: The Brier score taken apart, or None.
        bins: The reliability diagram.
        conditional: The same measures of the confidence c_k.
        missing: Why numbers are absent here ("no rounds", "not judged", "single class", "one prompt"), or None.
    """

    position: int
    n: int
    positives: int
    predicted_mean: float | None
    observed_mean: float | None
    ece: Estimate
    ece_floor: float | None
    ece_at_floor: bool | None
    ece_squared_debiased: float | None
    smooth_ece: float | None
    bias: Estimate
    auroc: Estimate
    auroc_conditional: Estimate
    brier: Estimate
    log_loss: Estimate
    corp: Decomposition | None
    bins: tuple[ReliabilityBin, ...]
    conditional: ConditionalMeasures
    missing: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """All positions under one set of temperatures, and the mean ECE over the positions that have one."""

    positions: tuple[PositionMeasures, ...]
    mean_ece: Estimate
    mean_ece_floor: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionChange:
    """Calibrated minus raw at one position, paired over the same rounds and draws; negative ECE is better."""

    position: int
    ece: Estimate
    bias: Estimate
    brier: Estimate
    auroc: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationChange:
    """Calibrated minus raw, position by position and in the mean."""

    positions: tuple[PositionChange, ...]
    mean_ece: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdPoint:
    """One threshold on c_k (the first c_k below it cuts the block), tokens per step with the bonus token.

    Attributes:
        threshold: Of the conditional confidence.
        accepted: Tokens kept per step (accepted drafts and the bonus token).
        rejected: Verified tokens per step that were thrown away.
        acceptance_rate: accepted / (accepted + rejected), DeepSpec's verify rate.
    """

    threshold: float
    accepted: float
    rejected: float
    acceptance_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The threshold sweep with raw and, where a calibration is given, calibrated confidences."""

    raw: tuple[ThresholdPoint, ...]
    calibrated: tuple[ThresholdPoint, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One set of rounds: all of them, a domain or a data set.

    Attributes:
        name: "all", or the name of the domain or data set as it stands in the trace.
        rounds: Rounds in the group.
        prompts: Prompts, or stand-in blocks of rounds where the trace has no prompt ids.
        raw: Measures of the logged confidences.
        calibrated: Measures under the calibration over the same rounds, or None without one.
        change: Calibrated minus raw, or None without a calibration.
        acceptance: What the target accepted.
        sweep: Threshold sweep.
    """

    name: str
    rounds: int
    prompts: int
    raw: Measures
    calibrated: Measures | None
    change: CalibrationChange | None
    acceptance: Acceptance
    sweep: Sweep | None
