"""The unconstrained search: the best budget over the whole curve, however jagged."""

from dataclasses import dataclass

import numpy as np

from dspark_calib.scheduling.policy import Floats, Integers, Step, count_chosen
from dspark_calib.scheduling.prefix_order import order_prefixes, throughput_by_budget


def search_lengths(survival: Floats, speeds: Floats) -> Integers:
    """Return the lengths that maximise Θ = τ·SPS(B) over every budget (DSpark, §5.2: Algorithm 1 without its stop).

    No assignment of drafts that can be accepted (a > 0) beats it in predicted throughput. On a jagged curve the
    choice depends on confidences that see the drafts they judge, so with confidences of the same round it is
    anticipating; engines use it with those of earlier rounds. Of equal maxima the largest budget is taken.

    Args:
        survival: a_k of each request, float64 [R, γ], not rising along a row.
        speeds: SPS(B) by B, at least R·(1 + γ) + 1 entries; 0 where the curve ends.

    Returns:
        Verified drafts, int64 [R].
    """
    num_requests = len(survival)
    order = order_prefixes(survival)
    theta = throughput_by_budget(order, speeds, num_requests)
    budget = order.drafts - int(np.argmax(theta[::-1]))
    return count_chosen(order.requests[:budget], num_requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnconstrainedSearch:
    """The search with the confidences of the round itself."""

    @property
    def name(self) -> str:
        """`search`."""
        return "search"

    @property
    def anticipates(self) -> bool:
        """True: a later peak of the curve is reached or not depending on what follows a draft."""
        return True

    @property
    def uses_confidence(self) -> bool:
        """True."""
        return True

    def verified_lengths(self, step: Step) -> Integers:
        """Return the lengths of highest predicted throughput, int64 [R]."""
        return search_lengths(step.survival, step.speeds)
