"""Is there any difference between two sets of prompts? Permutation tests that keep prompts whole.

If nothing drifted, which prompts came first is arbitrary: the statistic of the true split is one draw among
those of all splits. That holds at any number of prompts, where normal intervals need many.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Statistic = Callable[[Floats], Floats]  # sides [splits, prompts], 1 for the second set → [splits, γ]
Reduction = Callable[[Floats], Floats]  # [splits, γ] → [splits]

PERMUTATIONS = 999
_CHUNK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Permuted:
    """A statistic on the true split and on random ones; larger means more different.

    Attributes:
        true: Shape [γ].
        null: Shape [splits, γ].
    """

    true: Floats
    null: Floats

    def p_value(self, reduce: Reduction) -> float:
        """Return the share of splits, the true one included, that reach the true one after reduction over γ."""
        reached = int((reduce(self.null) >= reduce(self.true[None])[0]).sum())
        return (1 + reached) / (1 + len(self.null))


def permute_prompts(statistic: Statistic, first: int, second: int, rng: np.random.Generator) -> Permuted:
    """Evaluate a statistic on the true split and on 999 random ones of the same sizes.

    Args:
        statistic: Of sides, which are 0 for the first set and 1 for the second.
        first: Prompts in the first set; they come first.
        second: Prompts in the second set.
        rng: Source of the splits.
    """
    true = np.concatenate([np.zeros(first), np.ones(second)])
    chunk = max(1, min(PERMUTATIONS, _CHUNK_BYTES // (8 * len(true))))
    sizes = [min(chunk, PERMUTATIONS - start) for start in range(0, PERMUTATIONS, chunk)]
    null = [statistic(rng.permuted(np.tile(true, (rows, 1)), axis=1)) for rows in sizes]
    return Permuted(true=statistic(true[None])[0], null=np.concatenate(null))
