"""Bias along the confidence of position 1, the prompt's length and the depth in the response.

A drafter can be calibrated on the whole and drift inside a response; these slices show it. On a full trace
the bias is that of prefix survival a_k over the observed positions of a round; on a trace that a scheduler
cut it is that of c_k over the judged positions, which cutting does not distort.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.acceptance import ratio_estimate
from dspark_calib.metrics.estimate import UNDEFINED
from dspark_calib.summary.details import SliceCell, Slices
from dspark_calib.summary.survey import Floats, SurveyBatch
from dspark_calib.trace.rounds import UNKNOWN_ANCHOR

Quantity = Literal["confidence_1", "prompt_length", "depth"]
View = Literal["cumulative", "conditional"]

TOKEN_EDGES = (0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 1 << 30)
CONFIDENCE_EDGES = tuple(i / 10 for i in range(11))
ROUNDS, POSITIONS, OBSERVED, RAW, CALIBRATED = range(5)


class SliceSums:
    """Sums by (cluster, cell) of one quantity.

    Attributes:
        sums: Rounds, positions, accepted positions, Σ predicted raw, Σ predicted calibrated;
            float64 [clusters, cells, 5].
    """

    def __init__(self, quantity: Quantity) -> None:
        self.quantity: Quantity = quantity
        self.edges = CONFIDENCE_EDGES if quantity == "confidence_1" else TOKEN_EDGES
        self.sums: Floats = np.zeros((0, len(self.edges) - 1, 5))
        self.calibrated = False

    def add(self, batch: SurveyBatch, columns: Floats) -> None:
        """Add the rounds of a batch.

        Args:
            batch: The rounds.
            columns: What `slice_columns` returns for them, float64 [5, n].
        """
        values = _VALUES[self.quantity](batch)
        known = np.flatnonzero(values >= 0)
        if not len(known):
            return
        self.calibrated |= batch.calibrated is not None
        cells = len(self.edges) - 1
        cell = np.clip(np.searchsorted(self.edges, values[known], side="right") - 1, 0, cells - 1)
        clusters = batch.clusters[known].astype(np.int64)
        first, last = int(clusters.min()), int(clusters.max())
        self._grow(last + 1)
        code = (clusters - first) * cells + cell
        size = (last + 1 - first) * cells
        for index, column in enumerate(columns):
            added = np.bincount(code, weights=column[known], minlength=size)
            self.sums[first : last + 1, :, index] += added.reshape(-1, cells)

    def slices(self, view: View) -> Slices | None:
        """Return the cells that hold rounds, or None where the quantity is unknown everywhere."""
        filled = np.flatnonzero(self.sums[:, :, ROUNDS].sum(axis=0))
        cells = tuple(self._cell(int(i)) for i in filled)
        return Slices(quantity=self.quantity, view=view, cells=cells) if cells else None

    def _grow(self, clusters: int) -> None:
        missing = clusters - len(self.sums)
        if missing > 0:
            spare = max(missing, len(self.sums) // 2)
            self.sums = np.concatenate([self.sums, np.zeros((spare, *self.sums.shape[1:]))])

    def _cell(self, index: int) -> SliceCell:
        sums = self.sums[:, index]
        total = sums.sum(axis=0)
        positions = total[POSITIONS]
        calibrated = ratio_estimate(sums[:, CALIBRATED] - sums[:, OBSERVED], sums[:, POSITIONS], lowest=-1.0)
        return SliceCell(
            low=float(self.edges[index]),
            high=None if self.edges[index + 1] == TOKEN_EDGES[-1] else float(self.edges[index + 1]),
            n=int(total[ROUNDS]),
            prompts=int(np.count_nonzero(sums[:, ROUNDS])),
            predicted=float(total[RAW] / positions) if positions else None,
            observed=float(total[OBSERVED] / positions) if positions else None,
            raw_bias=ratio_estimate(sums[:, RAW] - sums[:, OBSERVED], sums[:, POSITIONS], lowest=-1.0),
            calibrated_bias=calibrated if self.calibrated else UNDEFINED,
        )


def slice_columns(batch: SurveyBatch, view: View) -> Floats:
    """Return rounds, positions, accepted positions and the predicted sums of each round, float64 [5, n]."""
    rounds = batch.rounds
    accepted, observed = rounds.accepted.astype(np.int64), rounds.observed.astype(np.int64)
    positions = observed if view == "cumulative" else np.minimum(observed, accepted + 1)
    raw = _predicted(batch.raw, positions, view)
    calibrated = raw if batch.calibrated is None else _predicted(batch.calibrated, positions, view)
    return np.stack([np.ones(len(rounds)), positions.astype(np.float64), accepted.astype(np.float64), raw, calibrated])


def _predicted(confidence: Floats, positions: npt.NDArray[np.int64], view: View) -> Floats:
    total = np.zeros(confidence.shape[1])
    survival = np.ones(confidence.shape[1])
    for k, row in enumerate(confidence):
        survival = row if view == "conditional" else survival * row
        total += np.where(positions > k, survival, 0.0)
    return total


def _confidence_1(batch: SurveyBatch) -> Floats:
    return np.where(batch.rounds.observed > 0, batch.raw[0], -1.0)


def _prompt_length(batch: SurveyBatch) -> Floats:
    return np.where(batch.rounds.prompt_length > 0, batch.rounds.prompt_length, -1).astype(np.float64)


def _depth(batch: SurveyBatch) -> Floats:
    rounds = batch.rounds
    return np.where(rounds.anchor == UNKNOWN_ANCHOR, -1, rounds.anchor - rounds.prompt_length).astype(np.float64)


_VALUES: dict[str, Callable[[SurveyBatch], Floats]] = {
    "confidence_1": _confidence_1,
    "prompt_length": _prompt_length,
    "depth": _depth,
}
