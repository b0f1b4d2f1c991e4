"""Scores of a trace, raw and calibrated, for all rounds and for each group: what report and gate read.

On the trace a calibration was fitted on, each prompt is scored with temperatures fitted without it; on
another trace the shipped temperatures are applied to every row. The record says which.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.file import Calibration, check_fits_trace
from dspark_calib.calibration.tables import CrossFit
from dspark_calib.metrics.acceptance import Acceptance, AcceptanceSums, compute_acceptance
from dspark_calib.metrics.bins import DEFAULT_BINS
from dspark_calib.metrics.bootstrap import DEFAULT_DRAWS, MIN_PROMPTS
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.numbering import Grouping
from dspark_calib.metrics.rows.passes import Progress
from dspark_calib.metrics.scores import ScoreChange, Scores
from dspark_calib.metrics.scoring import GroupSums, compute_change, compute_scores
from dspark_calib.metrics.sums.composed import ComposedView
from dspark_calib.metrics.sums.placements import Placements
from dspark_calib.metrics.sums.view_passes import sum_view
from dspark_calib.metrics.sums.view_sums import ViewSums
from dspark_calib.trace.clusters import assign_folds
from dspark_calib.trace.store import Trace

Floats = npt.NDArray[np.float64]
How = Literal["out_of_fold", "independent", "in_sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """One set of rounds: all of them, a domain or a data set.

    Attributes:
        name: `all`, or the name of the group.
        rounds: Rounds in it.
        prompts: Clusters in it (prompts, or what stands in for them).
        raw: Scores of the logged confidences.
        calibrated: Scores under the calibration over the same rounds, or None without one.
        change: Calibrated minus raw, or None.
        acceptance: What the target accepted.
    """

    name: str
    rounds: int
    prompts: int
    raw: Scores
    calibrated: Scores | None
    change: ScoreChange | None
    acceptance: Acceptance


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Scores of a trace.

    Attributes:
        evaluation: How the calibrated numbers were had; None without a calibration.
        groups: `all` first, then groups in order of appearance.
        clusters: What stands behind every interval.
        bins: Of the ECE.
        draws: Bootstrap replicates.
        seed: Of the replicates.
        censored: Rounds cut by a scheduler.
        warnings: Sentences for the reader.
    """

    evaluation: How | None
    groups: tuple[GroupScores, ...]
    clusters: str
    bins: int
    draws: int
    seed: int
    censored: int
    warnings: tuple[str, ...]


def evaluate(
    trace: Trace,
    calibration: Calibration | None = None,
    *,
    by: Grouping | None = None,
    bins: int = DEFAULT_BINS,
    draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    progress: Progress | None = None,
    judged: JudgedTrace | None = None,
) -> Evaluation:
    """Score a trace.

    Args:
        trace: Any trace.
        calibration: Temperatures to judge beside the raw confidences.
        by: Column whose values form groups beside `all`.
        bins: Equal-width bins of the ECE.
        draws: Bootstrap replicates behind the intervals.
        seed: Of the replicates; equal seeds make two evaluations paired.
        progress: Called with the name of the step and the rows done.
        judged: The same trace as already read for statistics, by the same column; read here when None.

    Raises:
        CalibrationFileError: If the calibration has another γ.
        InsufficientData: If the trace holds no rounds.
    """
    if calibration is not None:
        check_fits_trace(calibration, trace.gamma, trace.name)
    judged = JudgedTrace(trace, by) if judged is None else judged
    how, temperatures = held_out_temperatures(trace, judged, calibration)
    names = () if by is None else judged.clusters.group_names
    chosen = _chosen_groups(judged, names)
    raw = _score(judged, None, chosen, bins=bins, draws=draws, seed=seed, progress=progress)
    after: tuple[Scores | None, ...] = (None,) * len(chosen)
    if calibration is not None:
        after = _score(judged, temperatures, chosen, bins=bins, draws=draws, seed=seed, progress=progress)
    groups = tuple(
        _group(group, judged, before, calibrated) for group, before, calibrated in zip(chosen, raw, after, strict=True)
    )
    if len(names) == 1:  # the only group is everything: the same numbers under its name
        groups = (groups[0], replace(groups[0], name=names[0]))
    return Evaluation(
        evaluation=how,
        groups=groups,
        clusters=judged.clusters.kind,
        bins=bins,
        draws=draws,
        seed=seed,
        censored=judged.acceptance.censored,
        warnings=_warnings(judged, groups),
    )


def held_out_temperatures(
    trace: Trace, judged: JudgedTrace, calibration: Calibration | None
) -> tuple[How | None, Floats | None]:
    """Return how the calibrated numbers are had, and the temperatures: [γ], or [C, γ] out of fold."""
    if calibration is None:
        return None, None
    shipped = np.array(calibration.temperatures)
    if calibration.trace_hash is None or calibration.trace_hash != trace.content_hash:
        return "independent", shipped
    if calibration.cross_fit is None:
        return "in_sample", shipped
    return "out_of_fold", cluster_temperatures(judged, calibration.cross_fit, repeat=0)


def cluster_temperatures(judged: JudgedTrace, cross_fit: CrossFit, repeat: int) -> Floats:
    """Return, for each cluster, the temperatures fitted without it, shape [C, γ]."""
    folds = assign_folds(list(judged.clusters.keys), cross_fit.folds, cross_fit.seeds[repeat])
    return np.array(cross_fit.temperatures[repeat])[folds]


@dataclass(frozen=True, slots=True)
class _Views:
    """Sums of both views under one set of temperatures; the cumulative one is composed where rounds were cut."""

    cumulative: tuple[ViewSums, Placements] | ComposedView
    conditional: tuple[ViewSums, Placements]

    @classmethod
    def of(cls, judged: JudgedTrace, temperatures: Floats | None, bins: int, progress: Progress | None) -> "_Views":
        conditional = sum_view(judged, "conditional", temperatures, bins=bins, progress=progress)
        if judged.acceptance.censored:
            return cls(ComposedView.of(judged, conditional[0], temperatures, progress), conditional)
        return cls(sum_view(judged, "cumulative", temperatures, bins=bins, progress=progress), conditional)

    def select(
        self, members: npt.NDArray[np.bool_], group: int, hashes: npt.NDArray[np.uint64]
    ) -> tuple[GroupSums, GroupSums]:
        """Return the cumulative and the conditional sums of one group."""
        conditional = GroupSums.select(*self.conditional, members, group, hashes)
        if isinstance(self.cumulative, ComposedView):
            return self.cumulative.select(members, group, hashes), conditional
        return GroupSums.select(*self.cumulative, members, group, hashes), conditional


@dataclass(frozen=True, slots=True)
class _ChosenGroup:
    """A group to score: its name, its number (-1 for all rows) and its clusters, bool [C]."""

    name: str
    number: int
    members: npt.NDArray[np.bool_]


def _chosen_groups(judged: JudgedTrace, names: tuple[str, ...]) -> tuple[_ChosenGroup, ...]:
    of_cluster = judged.clusters.group
    named = () if len(names) == 1 else tuple(_ChosenGroup(n, g, of_cluster == g) for g, n in enumerate(names))
    return (_ChosenGroup("all", -1, np.ones(len(of_cluster), dtype=bool)), *named)


def _score(
    judged: JudgedTrace,
    temperatures: Floats | None,
    groups: tuple[_ChosenGroup, ...],
    *,
    bins: int,
    draws: int,
    seed: int,
    progress: Progress | None,
) -> tuple[Scores, ...]:
    """Score every group under one set of temperatures; their sums are gone before the next set's are made."""
    views, hashes = _Views.of(judged, temperatures, bins, progress), judged.clusters.hashes
    return tuple(
        compute_scores(*views.select(g.members, g.number, hashes[g.members]), draws=draws, seed=seed) for g in groups
    )


def _group(group: _ChosenGroup, judged: JudgedTrace, raw: Scores, calibrated: Scores | None) -> GroupScores:
    acceptance: AcceptanceSums = judged.acceptance.of_clusters(group.members)
    return GroupScores(
        name=group.name,
        rounds=acceptance.rounds,
        prompts=int(group.members.sum()),
        raw=raw,
        calibrated=calibrated,
        change=None if calibrated is None else compute_change(raw, calibrated),
        acceptance=compute_acceptance(acceptance),
    )


def _warnings(judged: JudgedTrace, groups: tuple[GroupScores, ...]) -> tuple[str, ...]:
    table = judged.clusters
    said = []
    if table.kind != "prompts":
        said.append(f"intervals rest on {table.kind}, not on prompts")
    few = [f"{g.name} ({g.prompts})" for g in groups if g.prompts < MIN_PROMPTS]
    if few:
        said.append(f"fewer than {MIN_PROMPTS} {table.kind} in {', '.join(few)}: intervals are rough")
    if judged.acceptance.censored:
        said.append(
            f"{judged.acceptance.censored} rounds were cut by a scheduler: conditional measures describe judged "
            "positions only; cumulative ones cover rounds whose confidences lie where drafts were judged, and labels "
            "that were held back are composed from the conditional curve"
        )
    return tuple(said)
