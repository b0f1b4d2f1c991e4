"""What moved between a reference and traffic, position by position, with intervals clustered by prompt."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_calib.decision.cluster_sums import ClusterSums
from dspark_calib.decision.clustered_ratio import change_estimate, ratio_estimates
from dspark_calib.decision.distance import merge_to_deciles, stability_index, wasserstein
from dspark_calib.metrics import Estimate, Scores
from dspark_calib.metrics.estimate import percentile_estimate

Floats = npt.NDArray[np.float64]

_RESAMPLES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPosition:
    """What moved at one draft position; changes are traffic minus reference.

    Attributes:
        position: k, from 1.
        psi: Population stability index of the confidence logits over pooled deciles.
        psi_floor: Its mean where nothing drifted, with as many prompts.
        wasserstein: Distance of the logits, in logits.
        acceptance: Acceptance of draft k given its prefix, on traffic.
        acceptance_change: Change of it.
        bias: Mean predicted minus observed prefix acceptance on traffic, with the temperatures in force.
        bias_change: Change of it.
        ece_reference: ECE on the reference, same temperatures.
        ece: ECE on traffic.
        auroc_reference: AUROC on the reference.
        auroc: AUROC on traffic.
    """

    position: int
    psi: Estimate
    psi_floor: float
    wasserstein: Estimate
    acceptance: Estimate
    acceptance_change: Estimate
    bias: Estimate
    bias_change: Estimate
    ece_reference: Estimate
    ece: Estimate
    auroc_reference: Estimate
    auroc: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return the position as JSON values; an estimate x becomes x, x_se and x_interval."""
        out: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Estimate):
                interval = None if value.low is None or value.high is None else [value.low, value.high]
                out |= {field.name: value.value, f"{field.name}_se": value.se, f"{field.name}_interval": interval}
            else:
                out[field.name] = value
        return out


def compute_drift_positions(
    old: ClusterSums, new: ClusterSums, scores: tuple[Scores, Scores], psi_floor: Floats, rng: np.random.Generator
) -> tuple[DriftPosition, ...]:
    """Compare two sides.

    Args:
        old: Sums of the reference.
        new: Sums of the traffic.
        scores: ECE and AUROC of reference and traffic, in the view that is in force.
        psi_floor: Mean stability index where nothing drifted, shape [γ].
        rng: Source of the resamples behind the intervals of the distances.
    """
    acceptance = [ratio_estimates(side.passed, side.judged) for side in (old, new)]
    bias = [ratio_estimates(side.predicted - side.accepted, side.observed) for side in (old, new)]
    weights = [rng.poisson(1.0, (_RESAMPLES, side.clusters)).astype(np.float64) for side in (old, new)]
    before, after = (s.cumulative for s in scores)
    return tuple(
        DriftPosition(
            position=k + 1,
            psi=_psi(old, new, k, weights),
            psi_floor=float(psi_floor[k]),
            wasserstein=_resampled(wasserstein, old.cells[:, k], new.cells[:, k], weights),
            acceptance=acceptance[1][k],
            acceptance_change=change_estimate(acceptance[0][k], acceptance[1][k]),
            bias=bias[1][k],
            bias_change=change_estimate(bias[0][k], bias[1][k]),
            ece_reference=before[k].ece,
            ece=after[k].ece,
            auroc_reference=before[k].auroc,
            auroc=after[k].auroc,
        )
        for k in range(old.gamma)
    )


def _psi(old: ClusterSums, new: ClusterSums, k: int, weights: list[Floats]) -> Estimate:
    bins = merge_to_deciles(np.concatenate([old.cells[:, k], new.cells[:, k]]))
    return _resampled(stability_index, bins[: old.clusters], bins[old.clusters :], weights)


def _resampled(
    distance: Callable[[Floats, Floats], Floats], first: Floats, second: Floats, weights: list[Floats]
) -> Estimate:
    draws = distance(weights[0] @ first, weights[1] @ second)
    return percentile_estimate(float(distance(first.sum(axis=0), second.sum(axis=0))), draws)
