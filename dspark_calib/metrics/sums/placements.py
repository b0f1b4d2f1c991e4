"""Where each row ranks among those of the other class: what the clustered variance of AUROC is made of."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.rows.scored_rows import ScoredRows
from dspark_calib.metrics.sums.view_sums import ViewSums

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Sums for the clustered variance of AUROC; they add up.

    Attributes:
        own: Per cluster, position and label: sum of placements within the cluster's own group, float64 [C, γ, 2].
        overall: The same within all rows, float64 [C, γ, 2].
    """

    own: Floats
    overall: Floats

    @classmethod
    def zeros(cls, clusters: int, gamma: int) -> "Placements":
        """Return sums of no rows."""
        return cls(own=np.zeros((clusters, gamma, 2)), overall=np.zeros((clusters, gamma, 2)))

    def merge(self, other: "Placements") -> None:
        """Add the sums of other rows in place."""
        np.add(self.own, other.own, out=self.own)
        np.add(self.overall, other.overall, out=self.overall)


class PlacementTables:
    """Looks up, for each row, the share of the other class it ranks above; made from finished `ViewSums`.

    Args:
        sums: Sums over all rows.
        group: Group number of each cluster, shape [C].

    Attributes:
        gamma: γ.
    """

    def __init__(self, sums: ViewSums, group: npt.NDArray[np.int32]) -> None:
        self.gamma = sums.scores.shape[1]
        self._group = group
        self._own = _placement_table(sums.scores)
        self._overall = self._own[0] if len(sums.scores) == 1 else _placement_table(sums.scores.sum(axis=0))

    def sum_rows(self, rows: ScoredRows) -> Placements:
        """Return the sums of one batch, over its own clusters."""
        size = len(rows.present)
        part = Placements.zeros(size, len(rows.positions))
        for k, at in enumerate(rows.positions):
            code = at.local * 2 + at.label
            overall = self._overall[k, at.label, at.score]
            part.overall[:, k] = np.bincount(code, weights=overall, minlength=size * 2).reshape(size, 2)
            if len(self._own) > 1:
                own = self._own[self._group[rows.present][at.local], k, at.label, at.score]
                part.own[:, k] = np.bincount(code, weights=own, minlength=size * 2).reshape(size, 2)
        return part


def _placement_table(scores: Integers) -> Floats:
    """Return the placement of a row with label y in bin s: negatives below it (y = 1), positives above it (y = 0)."""
    counts = scores.astype(np.float64)
    totals = np.maximum(counts.sum(axis=-1, keepdims=True), 1.0)
    below = (np.cumsum(counts, axis=-1) - counts / 2) / totals
    table = np.empty_like(below)
    table[..., 1, :] = below[..., 0, :]
    table[..., 0, :] = 1.0 - below[..., 1, :]
    return np.asarray(table, dtype=np.float64)
