"""Passes over a judged trace: batches are scored on threads and added up in row order.

Adding in row order makes every sum the same however many threads there are.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.judged import JudgedBatch, JudgedTrace
from dspark_calib.metrics.view_sums import Placements, PlacementTables, ScoredRows, View, ViewSums, score_rows

A = TypeVar("A")
B = TypeVar("B")
Progress = Callable[[str, int], None]


def map_in_order(function: Callable[[A], B], items: Iterable[A], threads: int = 2) -> Iterator[B]:
    """Yield function(item) in the order of the items, a few computed ahead on threads (numpy frees the lock)."""
    if threads < 2:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[B]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def sum_view(
    judged: JudgedTrace, view: View, temperatures: npt.ArrayLike | None, *, bins: int, progress: Progress | None = None
) -> tuple[ViewSums, Placements]:
    """Return all sums of one view: one pass for the histograms, one for placements among them.

    Args:
        judged: The rows.
        view: `cumulative` or `conditional`.
        temperatures: Shape [γ], [C, γ] or None; see `score_rows`.
        bins: Equal-width bins.
        progress: Called with the name of the step and the rows done.
    """
    table = judged.clusters
    sums = ViewSums.zeros(len(table), len(table.group_names), judged.gamma, bins)

    def scored(batch: JudgedBatch) -> ScoredRows:
        return score_rows(batch, view, temperatures)

    for rows in _told(map_in_order(scored, judged.batches(), judged.threads), judged, f"measure {view}", progress):
        sums.add(rows, table.group)
    ranks = PlacementTables(sums, table.group)
    shape = (len(table), judged.gamma, 2)
    placements = Placements(own=np.zeros(shape), overall=np.zeros(shape))
    for rows in _told(map_in_order(scored, judged.batches(), judged.threads), judged, f"rank {view}", progress):
        ranks.add(placements, rows)
    return sums, placements


def _told(
    rows: Iterator[ScoredRows], judged: JudgedTrace, step: str, progress: Progress | None
) -> Iterator[ScoredRows]:
    done = 0
    for batch in rows:
        yield batch
        # Position 1 of the cumulative view holds nearly every row; good enough for a bar.
        done = min(done + len(batch.positions[0].label), judged.rounds)
        if progress is not None:
            progress(step, done)
