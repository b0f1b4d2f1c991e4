"""What every verification policy sees and gives: one step of R requests, and how many drafts each verifies.

A policy is a frozen record with its parameters; its arithmetic is a pure function on arrays in the same module.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The blocks of R requests that wait for one verification step.

    Attributes:
        confidence: c_k of each block, float64 [R, γ].
        survival: a_k = Π_{i≤k} c_i, float64 [R, γ].
        lagged_survival: a_k of the block each request had one round earlier, float64 [R, γ]; NaN rows where the
            request is new. Engines that overlap scheduling with the device size the batch from it.
        speeds: SPS(B) by B, float64, at least R·(1 + γ) + 1 entries; 0 where the curve ends.
    """

    confidence: Floats
    survival: Floats
    lagged_survival: Floats
    speeds: Floats

    @property
    def num_requests(self) -> int:
        """R."""
        return len(self.survival)

    @property
    def gamma(self) -> int:
        """Drafts in a block."""
        return int(self.survival.shape[1])


class Policy(Protocol):
    """Decides how many leading drafts of each block are verified."""

    @property
    def name(self) -> str:
        """As the command line writes it, parameters included."""
        ...

    @property
    def anticipates(self) -> bool:
        """Whether a draft's admission can depend on confidences that have seen the draft itself.

        Such a policy biases sampled text (DSpark, Appendix A); `non_anticipation` shows it on a trace.
        """
        ...

    @property
    def uses_confidence(self) -> bool:
        """Whether the lengths depend on confidences at all."""
        ...

    def verified_lengths(self, step: Step) -> Integers:
        """Return ℓ_r, the verified drafts of each request: 0..γ, int64 [R]. A query is 1 + ℓ_r tokens long."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedPolicy:
    """Another policy on blocks of fewer drafts: what a smaller γ would verify of the same blocks.

    A drafter run with fewer slots gives other drafts and confidences, because its block is not causal; this shows
    only what the last positions are worth.

    Attributes:
        inner: The policy.
        gamma: Drafts it sees, at least 1.
    """

    inner: Policy
    gamma: int

    @property
    def name(self) -> str:
        """The inner name with the cap."""
        return f"{self.inner.name} of the first {self.gamma}"

    @property
    def anticipates(self) -> bool:
        """As the inner policy."""
        return self.inner.anticipates

    @property
    def uses_confidence(self) -> bool:
        """As the inner policy."""
        return self.inner.uses_confidence

    def verified_lengths(self, step: Step) -> Integers:
        """Return the inner policy's lengths on the first γ drafts, int64 [R]."""
        first = Step(
            confidence=step.confidence[:, : self.gamma],
            survival=step.survival[:, : self.gamma],
            lagged_survival=step.lagged_survival[:, : self.gamma],
            speeds=step.speeds,
        )
        return self.inner.verified_lengths(first)


def count_chosen(requests: Integers, num_requests: int) -> Integers:
    """Return how often each request occurs among the chosen drafts, int64 [R]: its verified length."""
    return np.bincount(requests, minlength=num_requests).astype(np.int64)
