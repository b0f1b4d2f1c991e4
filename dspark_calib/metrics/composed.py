"""Cumulative measures of rounds that a scheduler cut: composed from the conditional curve.

Which rounds carry a label at position k then depends on their confidence, so their prefix acceptance says nothing of
all rounds, and filling the unknown labels with zeros says less. Conditional acceptance on judged drafts stays valid for
a policy that does not look ahead. A round's observed survival is therefore composed as Π r_i(c_i), with r_i the
observed rate in the bin of c_i, over the rounds whose confidences all lie in bins that were judged; this takes
acceptance to depend on the past through the confidences alone. Where nothing was judged there is no number.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import BinSums, bin_indices, clamp, equal_width_edges, weighted_counts
from dspark_calib.metrics.estimate import UNDEFINED, Estimate
from dspark_calib.metrics.judged import JudgedTrace
from dspark_calib.metrics.scored_rows import confidences
from dspark_calib.metrics.scores import PositionScores, ScoreDraws, Scores
from dspark_calib.metrics.view_sums import ViewSums

Floats = npt.NDArray[np.float64]

MIN_JUDGED = 10  # rows in a bin before its rate serves in a product


class ComposedSums:
    """Σ predicted, Σ composed survival and rows by group, position and bin.

    Args:
        conditional: Sums of the conditional view under the same temperatures.
        judged: The trace.
        temperatures: Shape [γ], [C, γ] or None; see `scored_rows.score_rows`.
    """

    def __init__(self, conditional: ViewSums, judged: JudgedTrace, temperatures: npt.ArrayLike | None) -> None:
        groups, bins = len(judged.clusters.group_names), conditional.counts.shape[2]
        self.sums = np.zeros((groups + 1, judged.gamma, bins, 3))
        by_group = [conditional.counts[judged.clusters.group == g].sum(axis=0) for g in range(groups)]
        rates = [_rates(counts) for counts in by_group]
        whole = _rates(np.sum(by_group, axis=0))
        for batch in judged.batches():
            c = confidences(batch, temperatures)
            group = judged.clusters.group[batch.cluster]
            for g in range(groups):
                rows = group == g
                self._add(g, c[:, rows], rates[g])
            self._add(groups, c, whole)

    def _add(self, group: int, c: Floats, rates: Floats) -> None:
        predicted, observed = np.ones(c.shape[1]), np.ones(c.shape[1])
        bins = rates.shape[1]
        for k in range(len(c)):
            predicted = predicted * c[k]
            observed = observed * rates[k, bin_indices(clamp(c[k]), bins)]
            known = np.isfinite(observed)
            p = clamp(predicted[known])
            cell = bin_indices(p, bins)
            for column, values in enumerate((np.ones_like(p), p, observed[known])):
                self.sums[group, k, :, column] += weighted_counts(cell, values, bins)

    def compose(self, scores: Scores, group: int) -> Scores:
        """Return scores whose cumulative view is the composed one; group -1 is all rows."""
        positions = tuple(_composed_position(p, self.sums[group, k]) for k, p in enumerate(scores.cumulative))
        eces = [p.ece.value for p in positions if p.ece.value is not None]
        nothing = np.full_like(scores.draws.ece, np.nan)
        return replace(
            scores,
            cumulative=positions,
            mean_ece=Estimate(value=float(np.mean(eces)) if eces else None),
            mean_ece_floor=None,
            draws=ScoreDraws(ece=nothing, bias=nothing, brier=nothing, mean_ece=nothing[:, 0]),
            composed=True,
        )


def _rates(counts: npt.NDArray[np.int64]) -> Floats:
    """Return the observed rate by position and bin, NaN where fewer than ten rows were judged, shape [γ, B]."""
    n = counts.sum(axis=-1).astype(np.float64)
    return np.where(n >= MIN_JUDGED, counts[..., 1] / np.maximum(n, 1), np.nan)


def _composed_position(position: PositionScores, sums: Floats) -> PositionScores:
    n, predicted, observed = sums.T
    total = float(n.sum())
    bins = BinSums(
        edges=equal_width_edges(len(n)), n=n.astype(np.int64), predicted_sum=predicted, observed_sum=observed
    )
    bias = float((predicted - observed).sum() / total) if total else None
    return PositionScores(
        position=position.position,
        n=int(total),
        positives=float(observed.sum()),
        clusters=position.clusters,
        predicted_sum=float(predicted.sum()),
        ece=Estimate(value=bins.ece),
        ece_floor=None,
        ece_floor_high=None,
        ece_at_floor=None,
        ece_squared_debiased=None,
        smooth_ece=None,
        bias=Estimate(value=bias),
        brier=UNDEFINED,
        log_loss=UNDEFINED,
        auroc=UNDEFINED,
        corp=None,
        bins=bins,
        missing=None if total else "not judged",
    )
