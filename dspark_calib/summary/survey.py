"""One pass over a trace for what the measures of calibration do not hold: sweep, slices and proxies.

Every accumulator keeps counts and sums only, so that memory depends on prompts and not on rounds.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.rows.passes import map_in_order
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
    return map_in_order(_with_confidences, _numbered(trace, temperatures_of, optional))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered:
    rounds: Rounds
    clusters: npt.NDArray[np.int32]
    temperatures: Floats | None  # [clusters so far, γ]


def _numbered(trace: Trace, temperatures_of: TemperaturesOf | None, optional: tuple[str, ...]) -> Iterator[_Numbered]:
    clusters = PromptClusters(trace.provenance.prompts)
    known: Floats = np.empty((0, trace.gamma))
    for rounds in trace.batches(optional):
        codes = clusters.assign(rounds)
        fresh = clusters.keys[len(known) :]
        if temperatures_of is not None and fresh:
            known = np.concatenate([known, temperatures_of(fresh)])
        yield _Numbered(rounds=rounds, clusters=codes, temperatures=None if temperatures_of is None else known)


def _with_confidences(batch: _Numbered) -> SurveyBatch:
    logits = np.ascontiguousarray(batch.rounds.confidence_logits.T, dtype=np.float64)
    tempered = None if batch.temperatures is None else sigmoid(logits / batch.temperatures[batch.clusters].T)
    return SurveyBatch(rounds=batch.rounds, clusters=batch.clusters, raw=sigmoid(logits), calibrated=tempered)
