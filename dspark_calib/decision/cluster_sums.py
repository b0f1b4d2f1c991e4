"""Per-prompt sums of a trace: all that drift needs, in memory that grows with prompts and not with rounds."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import InsufficientData
from dspark_calib.survival import conditional_mask, observed_mask, prefix_labels, prefix_survival
from dspark_calib.trace import PromptClusters, Rounds, Trace

Floats = npt.NDArray[np.float64]

LOGIT_CELLS = 128
LOGIT_RANGE = 16.0  # σ(16) = 1 - 1e-7: cells beyond would hold confidences no scheduler tells apart
_MIN_CLUSTERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSums:
    """Sums over the rounds of each prompt (or of each block of rounds where there are no prompt ids).

    Attributes:
        observed: Rounds whose label is known, float64 [prompts, γ].
        predicted: Σ a_k over them, with the temperatures in force.
        accepted: Rounds among them whose first k drafts were accepted.
        judged: Rounds whose first k-1 drafts were accepted and whose k-th label is known.
        passed: Rounds among those whose k-th draft was accepted.
        cells: Histogram of z_k over the observed rounds, float64 [prompts, γ, 128], -16 … 16.
        rounds: Rounds in all.
        cut: Rounds whose window a scheduler cut before γ.
        by_prompt: Whether the clusters are prompts.
    """

    observed: Floats
    predicted: Floats
    accepted: Floats
    judged: Floats
    passed: Floats
    cells: Floats
    rounds: int
    cut: int
    by_prompt: bool

    @property
    def clusters(self) -> int:
        """Prompts, or blocks of rounds."""
        return len(self.observed)

    @property
    def gamma(self) -> int:
        """Drafts in a block."""
        return int(self.observed.shape[1])


def compute_cluster_sums(trace: Trace, temperatures: tuple[float, ...] | None) -> ClusterSums:
    """Sum a trace by prompt.

    Args:
        trace: Any trace.
        temperatures: In force where the trace comes from, length γ; None for raw confidences.

    Raises:
        InsufficientData: If there are fewer than two prompts.
    """
    clusters = PromptClusters(trace.provenance.prompts)
    sums = np.zeros((0, 5, trace.gamma))
    cells = np.zeros((0, trace.gamma, LOGIT_CELLS))
    cut = 0
    for rounds in trace.batches(optional=()):
        codes = clusters.assign(rounds)
        count = len(clusters.keys)
        cut += int((rounds.verified < trace.gamma).sum())
        values, batch_cells = _batch_sums(rounds, temperatures, codes, count)
        sums, cells = _grown(sums, count) + values, _grown(cells, count) + batch_cells
    if len(sums) < _MIN_CLUSTERS:
        raise InsufficientData(f"{trace.name}: {len(sums)} prompts; intervals by prompt need at least {_MIN_CLUSTERS}")
    observed, predicted, accepted, judged, passed = sums.transpose(1, 0, 2)
    return ClusterSums(
        observed=observed,
        predicted=predicted,
        accepted=accepted,
        judged=judged,
        passed=passed,
        cells=cells,
        rounds=trace.num_rounds,
        cut=cut,
        by_prompt=not clusters.has_blocks,
    )


def logit_cells(logits: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the cell of each logit, those beyond ±16 in the outermost."""
    scaled = (np.asarray(logits, dtype=np.float64) + LOGIT_RANGE) * (LOGIT_CELLS / (2 * LOGIT_RANGE))
    return np.clip(np.floor(scaled), 0, LOGIT_CELLS - 1).astype(np.int64)


def _grown(sums: Floats, count: int) -> Floats:
    return np.concatenate([sums, np.zeros((count - len(sums), *sums.shape[1:]))])


def _batch_sums(
    rounds: Rounds, temperatures: tuple[float, ...] | None, codes: npt.NDArray[np.int32], count: int
) -> tuple[Floats, Floats]:
    gamma = rounds.gamma
    seen = observed_mask(rounds.observed, gamma)
    labels = prefix_labels(rounds.accepted, gamma)
    judged = conditional_mask(rounds.accepted, rounds.observed, gamma)
    survival = prefix_survival(rounds.confidence_logits, temperatures)
    rows = (seen, survival * seen, labels & seen, judged, labels & judged)
    sums = np.stack([[np.bincount(codes, weights=row[:, k], minlength=count) for k in range(gamma)] for row in rows])
    cell = logit_cells(rounds.confidence_logits) + LOGIT_CELLS * codes.astype(np.int64)[:, None]
    cells = [np.bincount(cell[seen[:, k], k], minlength=count * LOGIT_CELLS) for k in range(gamma)]
    histogram = np.stack(cells).reshape(gamma, count, LOGIT_CELLS).transpose(1, 0, 2)
    return sums.transpose(2, 0, 1).astype(np.float64), histogram.astype(np.float64)
