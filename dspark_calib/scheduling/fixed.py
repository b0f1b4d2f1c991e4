"""Fixed length: verify the first drafts of every block, whatever the confidences."""

from dataclasses import dataclass

import numpy as np

from dspark_calib.scheduling.policy import Integers, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLength:
    """Verifies min(length, γ) drafts of every block.

    Attributes:
        length: Drafts verified, 0..γ; None means all γ.
    """

    length: int | None = None

    @property
    def name(self) -> str:
        """`fixed` or `fixed:LENGTH`."""
        return "fixed" if self.length is None else f"fixed:{self.length}"

    @property
    def anticipates(self) -> bool:
        """False: nothing about the drafts is looked at."""
        return False

    @property
    def uses_confidence(self) -> bool:
        """False."""
        return False

    def verified_lengths(self, step: Step) -> Integers:
        """Return the same length for every request, int64 [R]."""
        length = step.gamma if self.length is None else min(self.length, step.gamma)
        return np.full(step.num_requests, length, dtype=np.int64)
