"""Threshold sweep: what cutting blocks at the first low c_k would keep and throw away (the paper's Figure 5).

Counted on the rounds of the trace as they stand: a shorter verification would also move later anchors, which
`scheduling` replays exactly from a trace of all anchors.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.acceptance import policy_cut
from dspark_calib.metrics.rows.numbering import NO_NAME
from dspark_calib.summary.measures import Sweep, ThresholdPoint
from dspark_calib.summary.survey import Floats, SurveyBatch
from dspark_calib.trace.rounds import UNKNOWN_ANCHOR, Rounds, offered_drafts

THRESHOLDS = tuple(i / 10 for i in range(10))


class SweepCounts:
    """Rounds by (group, threshold, verified, accepted, bonus), raw and calibrated.

    Args:
        gamma: γ.
        groups: Names of the groups beside "all"; rounds of other groups count under "all" alone.
        column: Column that names the group of a round.
    """

    def __init__(self, gamma: int, groups: Sequence[str], column: str | None) -> None:
        self.gamma = gamma
        self.groups = tuple(groups)
        self.column = column
        shape = (2, len(self.groups) + 1, len(THRESHOLDS), gamma + 1, gamma + 1, 2)
        self.counts = np.zeros(shape, dtype=np.int64)
        self.calibrated = False

    def add(self, batch: SurveyBatch) -> None:
        """Count the rounds of a batch; those cut by the length limit are left out, as in τ."""
        kept = np.flatnonzero(~cut_by_limit(batch.rounds))
        codes = self._group_codes(batch.rounds)[kept]
        self._add(0, batch.rounds, kept, codes, batch.raw)
        if batch.calibrated is not None:
            self.calibrated = True
            self._add(1, batch.rounds, kept, codes, batch.calibrated)

    def sweep(self, group: str | None) -> Sweep | None:
        """Return the sweep of one group, or of all rounds for None; None where there are no rounds."""
        tables = self.counts.sum(axis=1) if group is None else self.counts[:, self.groups.index(group)]
        if not tables.any():
            return None
        return Sweep(raw=_points(tables[0]), calibrated=_points(tables[1]) if self.calibrated else None)

    def _add(
        self, kind: int, rounds: Rounds, kept: npt.NDArray[np.int64], groups: npt.NDArray[np.int64], confidence: Floats
    ) -> None:
        steps = _lowest_steps(confidence)[:, kept]
        accepted, observed = (column[kept].astype(np.int32) for column in (rounds.accepted, rounds.observed))
        ended = ends_text(rounds)[kept]
        wide = self.gamma + 1
        size, rows = 2 * wide * wide, self.counts.shape[1]
        for index in range(len(THRESHOLDS)):
            verified = np.minimum(_reaching(steps, index), observed)
            taken = np.minimum(accepted, verified)
            bonus = ~(ended & (taken == accepted))
            code = (verified * wide + taken) * 2 + bonus
            table = np.bincount(groups * size + code, minlength=rows * size)
            self.counts[kind, :, index] += table.reshape(rows, wide, wide, 2)

    def _group_codes(self, rounds: Rounds) -> npt.NDArray[np.int64]:
        other = len(self.groups)
        if self.column is None:
            return np.full(len(rounds), other, dtype=np.int64)
        labels = getattr(rounds, self.column)
        number = {name: i for i, name in enumerate(self.groups)}
        nameless = number.get(NO_NAME, other)  # null is code -1: the last entry
        lookup = np.array([*(number.get(name, other) for name in labels.names), nameless], dtype=np.int64)
        return np.asarray(lookup[labels.codes], dtype=np.int64)


def cut_by_limit(rounds: Rounds) -> npt.NDArray[np.bool_]:
    """Return which rounds the length limit cut short of the drafts they had, bool [n]."""
    names = rounds.ending.names
    limited = np.array([*(name == "length" for name in names), False])[rounds.ending.codes]
    return np.asarray(limited & (rounds.observed < offered_drafts(rounds)))


def ends_text(rounds: Rounds) -> npt.NDArray[np.bool_]:
    """Return in which rounds the last accepted draft is the EOS, so that no bonus token follows, bool [n]."""
    short = rounds.observed < offered_drafts(rounds)
    at_end = (rounds.accepted == rounds.observed) & short & ~policy_cut(rounds)
    eos = np.array([*(name == "eos" for name in rounds.ending.names), False])[rounds.ending.codes]
    left = rounds.prompt_length.astype(np.int64) + rounds.response_length - 1 - rounds.anchor
    return np.asarray(at_end | (eos & (rounds.anchor != UNKNOWN_ANCHOR) & (rounds.accepted == left)))


def _lowest_steps(confidence: Floats) -> npt.NDArray[np.int8]:
    """Return the number of the highest threshold that all of c_1 … c_k reach, int8 [γ, n]."""
    reached = (confidence * len(THRESHOLDS)).astype(np.int8)  # a c_k within one rounding of a threshold counts as at it
    for k in range(1, len(reached)):
        np.minimum(reached[k - 1], reached[k], out=reached[k])
    return reached


def _reaching(steps: npt.NDArray[np.int8], threshold: int) -> npt.NDArray[np.int32]:
    lengths = np.zeros(steps.shape[1], dtype=np.int8)
    for row in steps:  # one contiguous row a position: several times the speed of a sum over axis 0
        lengths += (row >= threshold).view(np.int8)
    return lengths.astype(np.int32)


def _points(tables: npt.NDArray[np.int64]) -> tuple[ThresholdPoint, ...]:
    gamma = tables.shape[1] - 1
    verified, taken, bonus = np.ix_(np.arange(gamma + 1), np.arange(gamma + 1), np.arange(2))
    points = []
    for threshold, table in zip(THRESHOLDS, tables, strict=True):
        rounds = int(table.sum())
        kept, thrown = int((table * (taken + bonus)).sum()), int((table * (verified - taken)).sum())
        points.append(
            ThresholdPoint(
                threshold=threshold,
                accepted=kept / rounds,
                rejected=thrown / rounds,
                acceptance_rate=kept / (kept + thrown) if kept + thrown else 0.0,
            )
        )
    return tuple(points)
