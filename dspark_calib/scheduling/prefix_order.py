"""The order in which every budget is filled: drafts of all requests by prefix survival, best first.

Because a_k never rises within a request, the first b drafts of this order are prefixes, and no other b drafts
are expected to accept more. What differs between schedulers is only where they stop.
"""

from dataclasses import dataclass

import numpy as np

from dspark_calib.scheduling.policy import Floats, Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixOrder:
    """Drafts that can be accepted at all, by survival descending; ties by request, then by position.

    Attributes:
        requests: Request of each draft, int64 [drafts].
        expected: τ(b) = R + Σ of the b best survivals, float64 [drafts + 1]: expected tokens of the step.
    """

    requests: Integers
    expected: Floats

    @property
    def drafts(self) -> int:
        """Drafts with a survival above 0."""
        return len(self.requests)


def order_prefixes(survival: Floats) -> PrefixOrder:
    """Sort the drafts of one step (Algorithm 1, lines 1-3).

    Args:
        survival: a_k of each request, float64 [R, γ], not rising along a row.

    Returns:
        The order; drafts of survival 0 are left out, as in the paper.
    """
    num_requests, gamma = survival.shape
    flat = survival.ravel()
    order = np.argsort(-flat, kind="stable")[: np.count_nonzero(flat > 0)]
    expected = np.empty(len(order) + 1)
    expected[0] = num_requests
    np.cumsum(flat[order], out=expected[1:])
    expected[1:] += num_requests
    return PrefixOrder(requests=order // gamma, expected=expected)


def throughput_by_budget(order: PrefixOrder, speeds: Floats, num_requests: int) -> Floats:
    """Return Θ(b) = τ(b)·SPS(R + b) for b = 0..drafts, tokens per second.

    Args:
        order: The sorted drafts.
        speeds: SPS(B) by B, at least R + drafts + 1 entries; 0 where the curve ends.
        num_requests: R.
    """
    return order.expected * speeds[num_requests : num_requests + order.drafts + 1]
