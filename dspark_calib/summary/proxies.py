"""The confidence against what comes for free: AUROC given the prefix of draft probability, margin and entropy."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics import compute_auroc
from dspark_calib.summary.details import Proxy
from dspark_calib.survival import conditional_mask
from dspark_calib.trace.clusters import PromptClusters, stable_hash
from dspark_calib.trace.rounds import Rounds
from dspark_calib.trace.store import Trace

MAX_ROUNDS = 500_000
_GRAIN = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyColumn:
    """One free proxy: its name in the report, its column and the sign that makes more mean surer."""

    name: str
    column: str
    sign: float


PROXIES = (
    ProxyColumn(name="draft_prob", column="draft_logprobs", sign=1.0),
    ProxyColumn(name="margin", column="draft_margin", sign=1.0),
    ProxyColumn(name="entropy", column="draft_entropy", sign=-1.0),
)


def compute_proxies(trace: Trace, seed: int = 0) -> tuple[Proxy, ...]:
    """Return AUROC given the prefix of every proxy that the whole trace carries.

    Ranking needs every score at once, so beyond 500,000 rounds a fixed choice of whole prompts stands for all.

    Args:
        trace: Rounds with or without proxies.
        seed: Of that choice.
    """
    share = min(1.0, MAX_ROUNDS / max(trace.num_rounds, 1))
    clusters = PromptClusters(trace.provenance.prompts)
    kept: list[Rounds] = []
    codes: list[npt.NDArray[np.int32]] = []
    for rounds in trace.batches(tuple(proxy.column for proxy in PROXIES)):
        if all(getattr(rounds, proxy.column) is None for proxy in PROXIES):
            return ()
        numbers = clusters.assign(rounds)
        chosen = np.flatnonzero(_chosen(clusters, share, seed)[numbers])
        kept.append(rounds.take(chosen))
        codes.append(numbers[chosen])
    return tuple(proxy for column in PROXIES if (proxy := _proxy(column, kept, codes)) is not None)


def _chosen(clusters: PromptClusters, share: float, seed: int) -> npt.NDArray[np.bool_]:
    if share >= 1.0:
        return np.ones(len(clusters.keys), dtype=np.bool_)
    return np.array([stable_hash("proxies", seed, *key) % _GRAIN < share * _GRAIN for key in clusters.keys])


def _proxy(proxy: ProxyColumn, parts: list[Rounds], codes: list[npt.NDArray[np.int32]]) -> Proxy | None:
    columns = [getattr(part, proxy.column) for part in parts]
    if not parts or any(column is None for column in columns):
        return None
    scores = proxy.sign * np.concatenate(columns)
    accepted = np.concatenate([part.accepted for part in parts])
    observed = np.concatenate([part.observed for part in parts])
    clusters = np.concatenate(codes)
    judged = conditional_mask(accepted, observed, scores.shape[1]) & np.isfinite(scores)
    estimates = []
    for k in range(scores.shape[1]):
        rows = judged[:, k]
        estimates.append(compute_auroc(scores[rows, k], accepted[rows] > k, clusters[rows]))
    return Proxy(name=proxy.name, rounds=len(accepted), auroc_conditional=tuple(estimates))
