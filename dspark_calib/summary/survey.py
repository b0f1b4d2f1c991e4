"""One pass over a trace for what the measures of calibration do not hold: sweep, slices and proxies.

Every accumulator keeps counts and sums only, so that memory depends on prompts and not on rounds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.survival import sigmoid
from dspark_calib.trace.clusters import ClusterKey, PromptClusters
from dspark_calib.trace.rounds import Rounds
from dspark_calib.trace.store import Trace

Floats = npt.NDArray[np.float64]
TemperaturesOf = Callable[[list[ClusterKey]], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyBatch:
    """Rounds of one batch with their confidences.

    Attributes:
        rounds: The batch.
        clusters: Cluster of each round, int32 [n].
        raw: c_k of the logged logits, float64 [γ, n]: one contiguous row a position.
        calibrated: c_k under the calibration, float64 [γ, n], or None without one.
    """

    rounds: Rounds
    clusters: npt.NDArray[np.int32]
    raw: Floats
    calibrated: Floats | None


def survey_batches(
    trace: Trace, temperatures_of: TemperaturesOf | None, optional: tuple[str, ...] = ()
) -> Iterator[SurveyBatch]:
    """Yield the batches of a trace with raw and calibrated confidences.

    Args:
        trace: Rounds to go through.
        temperatures_of: Cluster keys → temperatures float64 [clusters, γ] (out of fold, each cluster has its
            own); None without a calibration.
        optional: Optional columns to read.
    """
    clusters = PromptClusters(trace.provenance.prompts)
    known: Floats = np.empty((0, trace.gamma))
    for rounds in trace.batches(optional):
        codes = clusters.assign(rounds)
        logits = np.ascontiguousarray(rounds.confidence_logits.T, dtype=np.float64)
        calibrated = None
        if temperatures_of is not None:
            fresh = clusters.keys[len(known) :]
            known = np.concatenate([known, temperatures_of(fresh)]) if fresh else known
            calibrated = sigmoid(logits / known[codes].T)
        yield SurveyBatch(rounds=rounds, clusters=codes, raw=sigmoid(logits), calibrated=calibrated)
