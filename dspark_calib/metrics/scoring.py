"""From sums to measures: the table of one group of clusters, with its replicates.

All intervals resample clusters through weights on their sums; no row is touched again.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.acceptance import ratio_estimate
from dspark_calib.metrics.bins import BinSums, equal_width_edges
from dspark_calib.metrics.bootstrap import Hashes, weighted_sums
from dspark_calib.metrics.corp import decompose_brier
from dspark_calib.metrics.ece import compute_squared_error_debiased
from dspark_calib.metrics.estimate import (
    UNDEFINED,
    Estimate,
    basic_estimate,
    normal_estimate,
    percentile_estimate,
)
from dspark_calib.metrics.ranking import auroc_of_counts, cluster_deviations, clustered_se
from dspark_calib.metrics.scores import PositionScores, ScoreChange, ScoreDraws, Scores
from dspark_calib.metrics.smooth_ece import smooth_ece_of_residuals
from dspark_calib.metrics.sums.placements import Placements
from dspark_calib.metrics.sums.view_sums import ViewSums

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64] | npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSums:
    """The sums of one view for one group of rounds.

    Attributes:
        rows: By cluster, position and bin, int64 [C, γ, B].
        positives: Sum of labels, int64 or, composed, float64 [C, γ, B].
        predicted: Sum of predictions, float64 [C, γ, B].
        squared_error: float64 [C, γ].
        log_loss: float64 [C, γ].
        scores: Rows by position, label and score bin, int64 or, composed, float64 [γ, 2, S].
        residuals: float64 [γ, M].
        placements: By cluster, position and label, float64 [C, γ, 2].
        hashes: Of the clusters, uint64 [C].
        composed: Whether labels that a scheduler hid were composed; see `composed`.
    """

    rows: Integers
    positives: Counts
    predicted: Floats
    squared_error: Floats
    log_loss: Floats
    scores: Counts
    residuals: Floats
    placements: Floats
    hashes: Hashes
    composed: bool = False

    @classmethod
    def select(
        cls,
        sums: ViewSums,
        places: Placements,
        members: npt.NDArray[np.bool_],
        group: int,
        hashes: Hashes,
    ) -> "GroupSums":
        """Take the clusters of one group.

        Args:
            sums: Sums over all rows.
            places: Placements over all rows.
            members: Clusters of the group, bool [C].
            group: Its number, or -1 for all rows.
            hashes: Of the members.
        """
        whole = group < 0
        # With one group its placements are those among all rows.
        place = places.overall if whole or len(sums.scores) == 1 else places.own
        chosen = slice(None) if members.all() else members  # without a copy
        counts = sums.counts[chosen]
        return cls(
            rows=counts.sum(axis=-1),
            positives=counts[..., 1],
            predicted=sums.predicted[chosen],
            squared_error=sums.squared_error[chosen],
            log_loss=sums.log_loss[chosen],
            scores=sums.scores.sum(axis=0) if whole else sums.scores[group],
            residuals=sums.residuals.sum(axis=0) if whole else sums.residuals[group],
            placements=place[chosen],
            hashes=hashes,
        )

    @property
    def excess(self) -> Floats:
        """Σ(p - y) by cluster, position and bin, shape [C, γ, B]."""
        return self.predicted - self.positives


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replicates:
    ece: Floats  # [R, γ]
    null_ece: Floats  # [R, γ], had the confidences been calibrated
    bias: Floats  # [R, γ]
    brier: Floats  # [R, γ]

    @property
    def mean_ece(self) -> Floats:
        return _row_means(self.ece)


def compute_scores(cumulative: GroupSums, conditional: GroupSums, *, draws: int, seed: int) -> Scores:
    """Return both views of one group with intervals.

    Args:
        cumulative: Sums of a_k.
        conditional: Sums of c_k.
        draws: Bootstrap replicates.
        seed: Of the replicates.
    """
    replicates = _replicate(cumulative, draws, seed)
    positions = _positions(cumulative, replicates)
    defined = [p for p in positions if p.ece.value is not None]
    mean = float(np.mean([p.ece.value for p in defined])) if defined else None
    floors = [p.ece_floor for p in defined if p.ece_floor is not None]
    return Scores(
        cumulative=positions,
        conditional=_positions(conditional, _replicate(conditional, draws, seed)),
        mean_ece=basic_estimate(mean, replicates.mean_ece, lowest=0.0, highest=1.0),
        mean_ece_floor=float(np.mean(floors)) if floors else None,
        draws=ScoreDraws(
            ece=replicates.ece,
            bias=replicates.bias,
            brier=replicates.brier,
            mean_ece=replicates.mean_ece,
            auroc_moves=tuple(_auroc(cumulative, k)[1] for k in range(len(positions))),
        ),
        composed=cumulative.composed,
    )


def compute_change(raw: Scores, calibrated: Scores) -> ScoreChange:
    """Return calibrated minus raw, paired by replicate, and for AUROC by cluster."""

    def paired(name: str, interval: Callable[[float | None, Floats], Estimate]) -> tuple[Estimate, ...]:
        new, old = getattr(calibrated.draws, name), getattr(raw.draws, name)
        return tuple(
            interval(_minus(getattr(c, name).value, getattr(r, name).value), new[:, k] - old[:, k])
            for k, (c, r) in enumerate(zip(calibrated.cumulative, raw.cumulative, strict=True))
        )

    return ScoreChange(
        ece=paired("ece", basic_estimate),  # both ends are folded at 0, the calibrated one more: pivotal
        bias=paired("bias", percentile_estimate),
        brier=paired("brier", percentile_estimate),
        auroc=tuple(
            _auroc_change(*both)
            for both in zip(
                raw.cumulative,
                calibrated.cumulative,
                raw.draws.auroc_moves,
                calibrated.draws.auroc_moves,
                strict=True,
            )
        ),
        mean_ece=basic_estimate(
            _minus(calibrated.mean_ece.value, raw.mean_ece.value), calibrated.draws.mean_ece - raw.draws.mean_ece
        ),
    )


def _auroc_change(raw: PositionScores, new: PositionScores, old: Floats | None, moves: Floats | None) -> Estimate:
    value = _minus(new.auroc.value, raw.auroc.value)
    if value is None or old is None or moves is None:
        return Estimate(value=value)
    return normal_estimate(value, clustered_se(moves - old), lowest=-1.0, highest=1.0)


def _minus(new: float | None, old: float | None) -> float | None:
    return None if new is None or old is None else new - old


def _replicate(sums: GroupSums, draws: int, seed: int) -> _Replicates:
    clusters, gamma, _ = sums.predicted.shape
    if clusters < 2:
        empty = np.full((draws, gamma), np.nan)
        return _Replicates(ece=empty, null_ece=empty, bias=empty, brier=empty)
    rows, excess = sums.rows, sums.excess
    rows_drawn, excess_drawn, error_drawn = weighted_sums([rows, excess, sums.squared_error], sums.hashes, draws, seed)
    total = rows_drawn.sum(-1)
    # Σ(p - y) that each bin would have, were it calibrated: its excess less its share of the bin's.
    null = excess_drawn - rows_drawn * _over(excess.sum(0), rows.sum(0).astype(np.float64), empty=0.0)
    return _Replicates(
        ece=_over(np.abs(excess_drawn).sum(-1), total),
        null_ece=_over(np.abs(null).sum(-1), total),
        bias=_over(excess_drawn.sum(-1), total),
        brier=_over(error_drawn, total),
    )


def _over(numerator: Floats, denominator: Floats, empty: float = np.nan) -> Floats:
    return np.divide(numerator, denominator, out=np.full_like(numerator, empty), where=denominator > 0)


def _row_means(values: Floats) -> Floats:
    defined = np.isfinite(values)
    count = defined.sum(axis=1)
    return _over(np.where(defined, values, 0.0).sum(axis=1), count.astype(np.float64))


def _positions(sums: GroupSums, replicates: _Replicates) -> tuple[PositionScores, ...]:
    return tuple(_position(sums, replicates, k) for k in range(sums.predicted.shape[1]))


def _position(sums: GroupSums, replicates: _Replicates, k: int) -> PositionScores:
    n, excess = sums.rows[:, k], sums.excess[:, k]  # [C, B]
    rows = n.sum(axis=1)
    total, positives = int(n.sum()), sums.positives[:, k].sum().item()
    clusters = int((rows > 0).sum())
    reliability = _bins(n, sums.predicted[:, k], sums.positives[:, k])
    usable = replicates if clusters > 1 else None
    variance = _clustered_variance(excess, n)
    ece, floor, floor_high = _ece(reliability, variance, usable, k)
    bias = float((reliability.predicted_sum - reliability.observed_sum).sum() / total) if total else None
    brier = ratio_estimate(sums.squared_error[:, k], rows)
    single = total > 0 and positives in (0, total)
    return PositionScores(
        position=k + 1,
        n=total,
        positives=positives,
        clusters=clusters,
        predicted_sum=float(reliability.predicted_sum.sum()),
        ece=ece,
        ece_floor=floor,
        ece_floor_high=floor_high,
        ece_at_floor=None if ece.value is None or floor_high is None else ece.value <= floor_high,
        # Composed labels do not scatter like coin tosses: the variance of their mean comes from the prompts.
        ece_squared_debiased=(
            _debiased_by_cluster(reliability, variance, clusters)
            if sums.composed
            else compute_squared_error_debiased(reliability)
        ),
        smooth_ece=smooth_ece_of_residuals(sums.residuals[k], float(total)),
        bias=percentile_estimate(bias, None if usable is None else usable.bias[:, k]),
        brier=brier,
        log_loss=ratio_estimate(sums.log_loss[:, k], rows, highest=float("inf")),
        auroc=_auroc(sums, k)[0],
        corp=None if brier.value is None else decompose_brier(brier.value, *_score_cells(sums.scores[k])),
        bins=reliability,
        missing=_missing(total, single=single, clusters=clusters, composed=sums.composed),
    )


def _missing(total: int, *, single: bool, clusters: int, composed: bool) -> str | None:
    if total == 0:
        return "not judged" if composed else "no rounds"
    if single:
        return "single class"
    return "one prompt" if clusters < 2 else None


def _ece(
    reliability: BinSums, variance: Floats, replicates: _Replicates | None, k: int
) -> tuple[Estimate, float | None, float | None]:
    """Return the ECE with its basic interval, its floor and the floor's 95 % quantile.

    At the floor the basic interval is too short (its replicates are folded at 0): it then reaches from 0 to
    no less than the quantile of the floor, which is as far as an unseen error could hide.
    """
    value = reliability.ece
    if value is None:
        return UNDEFINED, None, None
    if replicates is None:
        return Estimate(value=value), None, None
    estimate = basic_estimate(value, replicates.ece[:, k], lowest=0.0, highest=1.0)
    null = replicates.null_ece[:, k]
    floor_high = float(np.quantile(null[np.isfinite(null)], 0.95)) if np.isfinite(null).any() else None
    if floor_high is not None and value <= floor_high and estimate.high is not None:
        estimate = Estimate(value=value, se=estimate.se, low=0.0, high=max(estimate.high, floor_high))
    # √(2/π) Σ_b sd(S_b) / n, the mean of a folded normal in each bin.
    return estimate, float(np.sqrt(2 / np.pi) * np.sqrt(variance).sum() / reliability.total), floor_high


def _clustered_variance(excess: Floats, n: Integers) -> Floats:
    """Return the variance of each bin's Σ(p - y) from the clusters' own scatter, shape [B]."""
    rows, total = n.sum(axis=0).astype(np.float64), excess.sum(axis=0)
    share = np.divide(total, rows, out=np.zeros_like(rows), where=rows > 0)
    deviation = excess - n * share
    clusters = max(int((n.sum(axis=1) > 0).sum()), 2)
    return np.asarray((deviation**2).sum(axis=0) * clusters / (clusters - 1))


def _debiased_by_cluster(reliability: BinSums, variance: Floats, clusters: int) -> float | None:
    """Return Σ_b n_b/n [(mean p - mean y)² - var(mean y)]; negative values are legal."""
    if clusters < 2:
        return None
    excess = reliability.predicted_sum - reliability.observed_sum
    return float(_over(excess**2 - variance, reliability.n.astype(np.float64), empty=0.0).sum() / reliability.total)


def _bins(n: Integers, predicted: Floats, positives: Counts) -> BinSums:
    rows, hits = n.sum(axis=0), positives.sum(axis=0)
    rate = np.divide(hits, rows, out=np.zeros(len(rows)), where=rows > 0)
    clusters = (n > 0).sum(axis=0)
    scatter = ((positives - n * rate) ** 2).sum(axis=0)
    correction = np.where(clusters > 1, clusters / np.maximum(clusters - 1, 1), np.nan)
    se = np.sqrt(scatter * correction) / np.where(rows > 0, rows, np.nan)
    return BinSums(
        edges=equal_width_edges(len(rows)),
        n=rows,
        predicted_sum=predicted.sum(axis=0),
        observed_sum=hits.astype(np.float64),
        observed_se=se,
    )


def _auroc(sums: GroupSums, k: int) -> tuple[Estimate, Floats | None]:
    """Return the AUROC and by how much each cluster moves it, shape [C]."""
    value = auroc_of_counts(sums.scores[k, 0], sums.scores[k, 1])
    if value is None:
        return UNDEFINED, None
    place, positives = sums.placements[:, k], sums.positives[:, k].sum(axis=1).astype(np.float64)
    negatives = sums.rows[:, k].sum(axis=1) - positives
    deviations = cluster_deviations(value, place[:, 1], positives, place[:, 0], negatives)
    return normal_estimate(value, clustered_se(deviations), lowest=0.0, highest=1.0), deviations


def _score_cells(scores: Counts) -> tuple[Floats, Floats]:
    total = scores.sum(axis=0)
    filled = total > 0
    return total[filled].astype(np.float64), scores[1, filled].astype(np.float64)
