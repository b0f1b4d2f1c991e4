"""The lag sums of the pairing check against plain loops, however the rows are cut into batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dspark_calib.diagnostics.pairing import LAGS, _by_lag, _lag_sums, _ranks, _scores
from dspark_calib.metrics.ranking import compute_auroc
from dspark_calib.metrics.rows.judged_rows import JudgedBatch

CLUSTERS = 4


@dataclass
class Cut:
    """A judged trace in batches of one's choice."""

    whole: JudgedBatch
    edges: list[int]
    threads: int = 1

    @property
    def rounds(self) -> int:
        """Rows."""
        return len(self.whole)

    @property
    def clusters(self) -> range:
        """Prompts."""
        return range(CLUSTERS)

    def batches(self) -> Iterator[JudgedBatch]:
        """Yield the rows as they are cut."""
        for a, b in zip([0, *self.edges], [*self.edges, len(self.whole)], strict=True):
            if b > a:
                yield self.whole.take(slice(a, b))


def drawn(seed: int, rows: int = 40) -> JudgedBatch:
    """Random rounds of four prompts in runs."""
    rng = np.random.default_rng(seed)
    return JudgedBatch(
        logits=rng.normal(0, 3, (rows, 2)).astype(np.float32),
        accepted=rng.integers(0, 3, rows).astype(np.int16),
        observed=np.full(rows, 2, np.int16),
        cluster=np.sort(rng.integers(0, CLUSTERS, rows)).astype(np.int32),
        cut=np.zeros(rows, bool),
    )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), edges=st.lists(st.integers(0, 40), max_size=12).map(sorted))
def test_any_cut_gives_the_sums_of_plain_loops(seed: int, edges: list[int]) -> None:
    """Every pair of rows of one prompt at each lag is met once."""
    batch = drawn(seed)
    ranks = _ranks(Cut(batch, edges))
    assert ranks is not None
    expected = np.zeros((len(LAGS), CLUSTERS, 2, 2))
    rank = ranks[_scores(batch)]
    for index, lag in enumerate(LAGS):
        for i in range(len(batch)):
            j = i + lag
            if 0 <= j < len(batch) and batch.cluster[i] == batch.cluster[j]:
                label = int(batch.accepted[j] > 0)
                expected[index, batch.cluster[i], label] += (1, rank[i])
    np.testing.assert_allclose(_lag_sums(Cut(batch, edges), ranks), expected, atol=1e-12)


def test_the_statistic_in_place_is_the_auroc() -> None:
    """At lag 0, from ranks among all rounds, within the coarseness of the 512 scores."""
    batch = drawn(3, 4000)
    whole = Cut(batch, [1000, 1001])
    ranks = _ranks(whole)
    assert ranks is not None
    auroc, _ = _by_lag(_lag_sums(whole, ranks))
    exact = compute_auroc(batch.logits[:, 0], batch.accepted > 0).value
    assert exact is not None
    assert abs(auroc[0] - exact) < 1e-3
