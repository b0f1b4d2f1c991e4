"""Labels of rounds that a scheduler cut: known as far as they were judged, composed from there on.

A round whose sent drafts were all accepted survives to a position that was held back with probability Π r_i(c_i)
over the positions held back, where r_i is the observed rate of judged drafts in the bin of c_i. A rejection inside
the window settles every later position. The derivatives with respect to the rates come along: they carry the
uncertainty of the rates into every measure.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import bin_indices, clamp
from dspark_calib.metrics.rows.judged_rows import JudgedBatch
from dspark_calib.metrics.rows.scored_rows import confidences, score_rows

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSets:
    """The conditional curves that labels are composed from: one for each set of clusters.

    Attributes:
        rates: Observed rate by set, position and bin of c_k; NaN where too little was judged, float64 [G, γ, B].
        set_of: Set of each cluster, int32 [C].
    """

    rates: Floats
    set_of: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """∂label/∂r_j of the rows whose draft j was held back; arrays of shape [h].

    Attributes:
        position: j, from 0.
        rows: Index among the rows of the composed position.
        bins: Bin of c_j.
        factor: The label without its factor r_j.
    """

    position: int
    rows: Integers
    bins: Integers
    factor: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposedPosition:
    """The rows of one batch on the judged range of one position; arrays of shape [n].

    Attributes:
        predicted: a_k.
        log_survival: Its logarithm.
        score: Score bin for ranks.
        label: 0 or 1 where known, else the composed survival.
        cluster: Cluster number.
        sets: Number of the set whose rates composed the label.
        slopes: One for each earlier position, and this one, at which a row was held back.
    """

    predicted: Floats
    log_survival: Floats
    score: Integers
    label: Floats
    cluster: npt.NDArray[np.int32]
    sets: npt.NDArray[np.int32]
    slopes: tuple[Slope, ...]


def compose_rows(
    batch: JudgedBatch, curves: RateSets, temperatures: npt.ArrayLike | None
) -> tuple[ComposedPosition, ...]:
    """Return the rows of each position with known or composed labels.

    A row takes part at position k if c_1 … c_k all lie in bins that were judged: its own outcome has no say.
    As in a trace without cuts, positions behind the end of a text or behind the last draft offered are left out.

    Args:
        batch: n rounds.
        curves: Rates by set.
        temperatures: As for `score_rows`; the rates must come from the same ones.
    """
    everywhere = replace(batch, observed=np.full_like(batch.observed, batch.logits.shape[1]))
    scored = score_rows(everywhere, "cumulative", temperatures).positions
    bins = bin_indices(clamp(confidences(batch, temperatures)), curves.rates.shape[2])
    sets = curves.set_of[batch.cluster]
    open_rows = batch.cut & (batch.accepted == batch.observed)
    settled = batch.cut & ~open_rows  # rejected inside the window
    tail = _Tail(np.flatnonzero(open_rows), batch.observed)
    in_range = np.ones(len(batch), dtype=bool)
    positions = []
    for k, at in enumerate(scored):
        rate = curves.rates[sets, k, bins[k]]
        in_range &= np.isfinite(rate)
        tail.multiply(k, rate, bins[k])
        rows = in_range & ((batch.observed > k) | settled | open_rows)
        label = (batch.accepted > k).astype(np.float64)
        label[tail.rows] = tail.survival
        positions.append(
            ComposedPosition(
                predicted=at.predicted[rows],
                log_survival=at.log_survival[rows],
                score=at.score[rows],
                label=label[rows],
                cluster=batch.cluster[rows],
                sets=sets[rows],
                slopes=tail.slopes(rows),
            )
        )
    return tuple(positions)


class _Tail:
    """The product over positions held back, and the same product without each of its factors.

    Args:
        rows: Rows all of whose sent drafts were accepted, shape [h].
        observed: Drafts judged in each row of the batch.
    """

    def __init__(self, rows: Integers, observed: npt.NDArray[np.int16]) -> None:
        self.rows = rows
        self.survival = np.ones(len(rows))
        self._observed = observed[rows]
        self._without: list[tuple[Booleans, Integers, Floats]] = []  # by position j: held back, bin, product

    def multiply(self, k: int, rate: Floats, bins: Integers) -> None:
        held_back = self._observed <= k
        factor = np.where(held_back, rate[self.rows], 1.0)
        self._without = [(where, b, product * factor) for where, b, product in self._without]
        self._without.append((held_back, bins[self.rows], self.survival.copy()))
        self.survival = self.survival * factor

    def slopes(self, chosen: Booleans) -> tuple[Slope, ...]:
        """Return ∂label/∂r_j of the chosen rows of the batch, bool [n]."""
        place = np.cumsum(chosen) - 1
        found = []
        for j, (held_back, bins, product) in enumerate(self._without):
            h = held_back & chosen[self.rows]
            if h.any():
                found.append(Slope(position=j, rows=place[self.rows[h]], bins=bins[h], factor=product[h]))
        return tuple(found)
