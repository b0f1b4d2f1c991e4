"""Rows in memory, for what needs them as arrays: baselines, transfer between groups, joint refinement."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import bin_indices, clamp, weighted_counts
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.judged_rows import first_of_each
from dspark_calib.metrics.rows.scored_rows import View
from dspark_calib.survival import confidence

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

SAMPLE_ROUNDS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """n rounds as arrays; of a long trace, the first rounds of each prompt.

    Attributes:
        logits: float64 [n, γ].
        accepted: int16 [n].
        observed: int16 [n].
        cluster: int32 [n].
        view: Which predictions and labels count.
    """

    logits: Floats
    accepted: npt.NDArray[np.int16]
    observed: npt.NDArray[np.int16]
    cluster: npt.NDArray[np.int32]
    view: View

    @classmethod
    def of(cls, judged: JudgedTrace, view: View) -> "Sample":
        """Take all rounds up to 200,000, above that as many of each prompt as keep the whole below."""
        limit = rounds_of_each(judged, SAMPLE_ROUNDS)
        seen = np.zeros(len(judged.clusters), dtype=np.int64)
        kept = []
        for batch in judged.batches():
            if limit is not None:
                batch = batch.take(first_of_each(batch.cluster, seen, limit))  # noqa: PLW2901
            kept.append(batch)
        return cls(
            logits=np.concatenate([b.logits for b in kept]).astype(np.float64),
            accepted=np.concatenate([b.accepted for b in kept]),
            observed=np.concatenate([b.observed for b in kept]),
            cluster=np.concatenate([b.cluster for b in kept]),
            view=view,
        )

    @property
    def gamma(self) -> int:
        """Drafts in a block."""
        return int(self.logits.shape[1])

    def take(self, rows: Booleans) -> "Sample":
        """Select rows by mask."""
        return Sample(
            logits=self.logits[rows],
            accepted=self.accepted[rows],
            observed=self.observed[rows],
            cluster=self.cluster[rows],
            view=self.view,
        )

    def labelled(self, k: int) -> Booleans:
        """Return which rows carry a label at position k (0-based) in the view, shape [n]."""
        rows = self.observed > k
        return rows & (self.accepted >= k) if self.view == "conditional" else rows

    def judged(self, k: int) -> Booleans:
        """Return which rows had draft k judged given its prefix, shape [n]."""
        return (self.observed > k) & (self.accepted >= k)

    def predictions(self, confidences: Floats) -> Floats:
        """Return what the view predicts from conditional confidences, shape [n, γ]."""
        return np.asarray(np.cumprod(confidences, axis=1)) if self.view == "cumulative" else confidences

    def predictions_at(self, temperatures: npt.ArrayLike | None) -> Floats:
        """Return what the view predicts under temperatures, shape [n, γ]."""
        return self.predictions(confidence(self.logits, temperatures))

    def excess(self, predicted: Floats, k: int, bins: int) -> Floats:
        """Return Σ(p - y) by bin at position k (0-based), shape [B]."""
        rows = self.labelled(k)
        p = clamp(predicted[rows, k])
        return weighted_counts(bin_indices(p, bins), p - (self.accepted[rows] > k), bins)

    def ece(self, predicted: Floats, bins: int) -> tuple[float | None, ...]:
        """Return the ECE per position, None where no row has a label."""
        counts = [int(self.labelled(k).sum()) for k in range(self.gamma)]
        return tuple(
            float(np.abs(self.excess(predicted, k, bins)).sum() / n) if n else None for k, n in enumerate(counts)
        )

    def brier(self, predicted: Floats) -> tuple[float | None, ...]:
        """Return the Brier score per position, None where no row has a label."""
        scores: list[float | None] = []
        for k in range(self.gamma):
            rows = self.labelled(k)
            error = clamp(predicted[rows, k]) - (self.accepted[rows] > k)
            scores.append(float((error**2).mean()) if rows.any() else None)
        return tuple(scores)


def mean_defined(values: tuple[float | None, ...]) -> float | None:
    """Return the mean of the values that are not None, or None."""
    defined = [v for v in values if v is not None]
    return float(np.mean(defined)) if defined else None


def rounds_of_each(judged: JudgedTrace, most: int) -> int | None:
    """Return how many rounds of each prompt keep the whole at or below `most`; None where all do."""
    return None if judged.rounds <= most else max(most // len(judged.clusters), 1)
