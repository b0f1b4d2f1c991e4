"""The three questions of drift, answered by permuting prompts: confidences, acceptance, calibration."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.decision.cluster_sums import ClusterSums
from dspark_calib.decision.clustered_ratio import studentised_difference
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
    bins = [merge_to_deciles(np.concatenate([old.cells[:, k], new.cells[:, k]])) for k in range(old.gamma)]
    errors = (old.predicted - old.accepted, new.predicted - new.accepted)
    found: dict[str, tuple[Permuted, Reduction]] = {
        "confidence": (_permuted_shares(bins, old.clusters, new.clusters, rng), lambda values: values.mean(axis=1)),
        "acceptance": (_permuted_ratio((old.passed, new.passed), (old.judged, new.judged), rng), _largest),
        "calibration": (_permuted_ratio(errors, (old.observed, new.observed), rng), _largest),
    }
    p_values = [permuted.p_value(reduce) for permuted, reduce in found.values()]
    levels = holm_levels(p_values, ALPHA)
    tests = tuple(DriftTest(name=n, p_value=p, level=v) for n, p, v in zip(found, p_values, levels, strict=True))
    return tests, _chance_psi(bins, old.clusters, new.clusters, rng)


def _largest(values: Floats) -> Floats:
    return np.asarray(values.max(axis=1))


def _permuted_shares(bins: list[Floats], first: int, second: int, rng: np.random.Generator) -> Permuted:
    """Permute how far the shares of the logit bins lie apart: Σ (difference / clustered error)² per position."""

    def by_position(sides: Floats) -> Floats:
        return np.stack([(studentised_difference(b, _rows(b), sides) ** 2).sum(axis=1) for b in bins], axis=1)

    return permute_prompts(by_position, first, second, rng)


def _rows(cells: Floats) -> Floats:
    """Return the rounds of each prompt, once a bin, [prompts, bins]."""
    return np.asarray(np.broadcast_to(cells.sum(axis=1, keepdims=True), cells.shape))


def _chance_psi(bins: list[Floats], first: int, second: int, rng: np.random.Generator) -> Floats:
    """Return the mean stability index per position of random splits, brought to the true sides' rounds, [γ].

    Without drift the index is proportional to 1/n + 1/m for sides of n and m rounds.
    """

    def by_position(sides: Floats) -> Floats:
        columns = []
        for b in bins:
            one, other = (1 - sides) @ b, sides @ b
            noise = 1 / one.sum(axis=1).clip(min=1.0) + 1 / other.sum(axis=1).clip(min=1.0)
            true = 1 / b[:first].sum().clip(min=1.0) + 1 / b[first:].sum().clip(min=1.0)
            columns.append(stability_index(one, other) * (true / noise))
        return np.stack(columns, axis=1)

    return np.asarray(permute_prompts(by_position, first, second, rng).null.mean(axis=0))


def _permuted_ratio(
    numerators: tuple[Floats, Floats], denominators: tuple[Floats, Floats], rng: np.random.Generator
) -> Permuted:
    """Permute |difference of ratios|, each position in units of its own clustered error so that none drowns another."""
    numerator, denominator = np.concatenate(numerators), np.concatenate(denominators)

    def by_position(sides: Floats) -> Floats:
        return np.abs(studentised_difference(numerator, denominator, sides))

    return permute_prompts(by_position, len(numerators[0]), len(numerators[1]), rng)
