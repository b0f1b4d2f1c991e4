"""Algorithm 1 of the paper: add drafts by survival, stop at the first that does not raise throughput."""

from dataclasses import dataclass

import numpy as np

from dspark_calib.scheduling.policy import Floats, Integers, Step, count_chosen
from dspark_calib.scheduling.prefix_order import order_prefixes, throughput_by_budget


def early_stop_lengths(survival: Floats, speeds: Floats) -> Integers:
    """Return the verified lengths of Algorithm 1 (DSpark, §3.3).

    Starts with no drafts, Θ = R·SPS(R), and admits drafts in order of survival while each strictly raises
    Θ = τ·SPS(B). Whether a draft is admitted depends only on drafts at least as likely, never on its own
    continuation, which keeps sampling lossless (Appendix A). Optimal when Θ has a single peak.

    Args:
        survival: a_k of each request, float64 [R, γ], not rising along a row.
        speeds: SPS(B) by B, at least R·(1 + γ) + 1 entries; 0 where the curve ends.

    Returns:
        Verified drafts, int64 [R].
    """
    num_requests = len(survival)
    order = order_prefixes(survival)
    theta = throughput_by_budget(order, speeds, num_requests)
    falls = np.flatnonzero(theta[1:] <= theta[:-1])
    budget = int(falls[0]) if len(falls) else order.drafts
    return count_chosen(order.requests[:budget], num_requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStop:
    """Algorithm 1 with the confidences of the round itself."""

    @property
    def name(self) -> str:
        """`algorithm1`."""
        return "algorithm1"

    @property
    def anticipates(self) -> bool:
        """False: a draft is admitted or not before anything less likely is looked at."""
        return False

    @property
    def uses_confidence(self) -> bool:
        """True."""
        return True

    def verified_lengths(self, step: Step) -> Integers:
        """Return the lengths of Algorithm 1, int64 [R]."""
        return early_stop_lengths(step.survival, step.speeds)
