"""The three questions of drift, answered by permuting prompts: confidences, acceptance, calibration."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.decision.cluster_sums import ClusterSums
from dspark_calib.decision.clustered_ratio import ratio_difference, ratio_with_error
from dspark_calib.decision.distance import merge_to_deciles, stability_index
from dspark_calib.decision.multiplicity import holm_levels
from dspark_calib.decision.permutation import Permuted, Reduction, permute_prompts

Floats = npt.NDArray[np.float64]

ALPHA = 0.025  # of any false alarm in one comparison; the same as a gate's


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftTest:
    """One of the three questions.

    Attributes:
        name: `confidence`, `acceptance` or `calibration`.
        p_value: By permutation of prompts.
        level: What it is held against after Holm's correction.
    """

    name: str
    p_value: float
    level: float

    @property
    def moved(self) -> bool:
        """Whether the difference is more than chance."""
        return self.p_value <= self.level


def compute_drift_tests(
    old: ClusterSums, new: ClusterSums, rng: np.random.Generator
) -> tuple[tuple[DriftTest, ...], Floats]:
    """Answer the three questions.

    Returns:
        The tests, and the mean population stability index per position where nothing drifted, shape [γ].
    """
    psi = permuted_psi(old, new, rng)
    acceptance = _permuted_ratio((old.passed, new.passed), (old.judged, new.judged), rng)
    errors = (old.predicted - old.accepted, new.predicted - new.accepted)
    calibration = _permuted_ratio(errors, (old.observed, new.observed), rng)
    found: dict[str, tuple[Permuted, Reduction]] = {
        "confidence": (psi, lambda values: values.mean(axis=1)),
        "acceptance": (acceptance, lambda values: values.max(axis=1)),
        "calibration": (calibration, lambda values: values.max(axis=1)),
    }
    p_values = [permuted.p_value(reduce) for permuted, reduce in found.values()]
    levels = holm_levels(p_values, ALPHA)
    tests = tuple(DriftTest(name=n, p_value=p, level=v) for n, p, v in zip(found, p_values, levels, strict=True))
    return tests, psi.null.mean(axis=0)


def permuted_psi(old: ClusterSums, new: ClusterSums, rng: np.random.Generator) -> Permuted:
    """Return the stability index of the logits per position, on the true split and on random ones."""
    bins = [merge_to_deciles(np.concatenate([old.cells[:, k], new.cells[:, k]])) for k in range(old.gamma)]

    def by_position(sides: Floats) -> Floats:
        return np.stack([stability_index((1 - sides) @ b, sides @ b) for b in bins], axis=1)

    return permute_prompts(by_position, old.clusters, new.clusters, rng)


def _permuted_ratio(
    numerators: tuple[Floats, Floats], denominators: tuple[Floats, Floats], rng: np.random.Generator
) -> Permuted:
    """Permute |difference of ratios|, each position in units of its own clustered error so that none drowns another."""
    numerator, denominator = np.concatenate(numerators), np.concatenate(denominators)
    _, error = ratio_with_error(numerator, denominator)
    scale = np.where(np.isfinite(error) & (error > 0), error, np.inf)

    def by_position(sides: Floats) -> Floats:
        return np.abs(ratio_difference(numerator, denominator, sides)) / scale

    return permute_prompts(by_position, len(numerators[0]), len(numerators[1]), rng)
