"""Static thresholds: cut each block at its first draft that is not confident enough."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.scheduling.policy import Integers, Step


def threshold_lengths(probability: npt.ArrayLike, threshold: float) -> Integers:
    """Return how many leading entries of each row reach the threshold.

    With c_k this is DeepSpec's `--confidence-threshold` (the first c_k below it cuts); with a_k, which never
    rises, it is a bound on the chance that the last verified draft is accepted.

    Args:
        probability: c_k or a_k, shape [R, γ].
        threshold: In [0, 1].

    Returns:
        Verified drafts, int64 [R].

    >>> threshold_lengths([[0.9, 0.4, 0.8]], 0.5).tolist()
    [1]
    """
    reached = np.asarray(probability) >= threshold
    return np.asarray(np.logical_and.accumulate(reached, axis=1).sum(axis=1), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceThreshold:
    """DeepSpec's rule: the first c_k below the threshold cuts the block."""

    threshold: float

    @property
    def name(self) -> str:
        """`threshold:C`."""
        return f"threshold:{self.threshold:g}"

    @property
    def anticipates(self) -> bool:
        """False: whether draft k is admitted depends on c_1..c_k, and c_k has not seen draft k."""
        return False

    @property
    def uses_confidence(self) -> bool:
        """True."""
        return True

    def verified_lengths(self, step: Step) -> Integers:
        """Return the drafts before the first c_k below the threshold, int64 [R]."""
        return threshold_lengths(step.confidence, self.threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivalThreshold:
    """The same on prefix survival: verify a draft as long as a_k reaches the threshold."""

    threshold: float

    @property
    def name(self) -> str:
        """`survival:A`."""
        return f"survival:{self.threshold:g}"

    @property
    def anticipates(self) -> bool:
        """False: whether draft k is admitted depends on c_1..c_k, and c_k has not seen draft k."""
        return False

    @property
    def uses_confidence(self) -> bool:
        """True."""
        return True

    def verified_lengths(self, step: Step) -> Integers:
        """Return the drafts whose a_k reaches the threshold, int64 [R]."""
        return threshold_lengths(step.survival, self.threshold)
