"""What a replayed scheduler believes: raw confidences, calibrated ones, or the oracle's true acceptance."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import InsufficientData
from dspark_calib.scheduling.policy import Floats
from dspark_calib.survival import confidence
from dspark_calib.trace import Rounds

RAW = "raw"
CALIBRATED = "calibrated"
ORACLE = "oracle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidences:
    """Confidences of every row under one source.

    Attributes:
        source: `raw`, `calibrated` or `oracle`.
        conditional: c_k, float64 [n, γ].
        survival: a_k = Π_{i≤k} c_i, float64 [n, γ].
    """

    source: str
    conditional: Floats
    survival: Floats


def confidences_from(source: str, conditional: Floats) -> Confidences:
    """Complete conditional confidences by their running product."""
    return Confidences(
        source=source, conditional=conditional, survival=np.cumprod(conditional, axis=1, dtype=np.float64)
    )


def raw_confidences(rounds: Rounds) -> Confidences:
    """Return σ(z_k), what an engine without temperatures believes."""
    return confidences_from(RAW, confidence(rounds.confidence_logits))


def calibrated_confidences(
    rounds: Rounds, temperatures: npt.ArrayLike, fold: npt.NDArray[np.integer] | None = None
) -> Confidences:
    """Return σ(z_k/T_k).

    Args:
        rounds: n rounds.
        temperatures: One vector, shape [γ], or one a fold, shape [folds, γ].
        fold: Fold of each row, int [n], when there is one vector a fold: each row takes the temperatures that
            were fitted without its prompt.
    """
    if fold is None:
        return confidences_from(CALIBRATED, confidence(rounds.confidence_logits, temperatures))
    conditional = np.empty(rounds.confidence_logits.shape)
    for number, vector in enumerate(np.asarray(temperatures, dtype=np.float64)):
        rows = fold == number
        conditional[rows] = confidence(rounds.confidence_logits[rows], vector)
    return confidences_from(CALIBRATED, conditional)


def oracle_confidences(rounds: Rounds, elsewhere: Confidences) -> Confidences:
    """Return α_k = Σ min(p, q), the true acceptance probability of draft k given an accepted prefix.

    After a rejection nobody knows α on the drafter's own path; there the confidences of `elsewhere` stand in.
    In a greedy trace α is 0 or 1, so the oracle sees the outcome and nothing after a rejection counts.

    Args:
        rounds: n rounds with `acceptance_probs`.
        elsewhere: The confidences to use where α is unknown.

    Raises:
        InsufficientData: If the trace has no `acceptance_probs`.
    """
    alpha = rounds.acceptance_probs
    if alpha is None:
        raise InsufficientData("the trace has no acceptance_probs column, which the oracle needs; collect it again")
    known = alpha.astype(np.float64)
    return confidences_from(ORACLE, np.where(np.isnan(known), elsewhere.conditional, np.clip(known, 0.0, 1.0)))
