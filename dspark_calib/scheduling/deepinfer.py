"""DeepInfer's `MTPVarlen::schedule` and its allocation on the device, restated from DeepInfer 0.1.0.

The batch size is decided from confidences of two rounds ago, the lengths from those of the last round, and the
device redistributes the same total by the newest ones. Costs learnt while serving are in `deepinfer_cost`.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import CurveError
from dspark_calib.scheduling.curve import SpsCurve
from dspark_calib.scheduling.deepinfer_cost import StepCost
from dspark_calib.scheduling.policy import Floats, Integers, Step, count_chosen

Float32 = npt.NDArray[np.float32]
NEW_REQUEST = -1


def fill_missing_rates(survival: npt.ArrayLike, has_draft: npt.ArrayLike) -> Floats:
    """Return the rates the scheduler uses where it has none yet: 1 if the request has drafts, else 0.

    Args:
        survival: a_k by request, shape [R, γ]; a row of NaN where no confidences have arrived.
        has_draft: Whether each request has drafts to verify, bool [R].

    Returns:
        Rates without NaN, float64 [R, γ].
    """
    rates = np.asarray(survival, dtype=np.float64)
    default = np.where(np.asarray(has_draft, dtype=bool), 1.0, 0.0)
    return np.where(np.isnan(rates), default[:, None], rates)


def deepinfer_budget(budget_rates: Floats, curve: SpsCurve, cost: StepCost) -> int:
    """Return how many drafts the whole batch verifies.

    Walks the drafts by rate descending (ties by request) from R tokens on; each adds its rate to the expectation,
    kept in float32, and one token to the size. The first curve point of at least that size gives the step time,
    and the best throughput, strictly greater, wins. There is no early stop; sizes past the curve are skipped.

    Args:
        budget_rates: Rates of round N-2, float64 [R, γ].
        curve: Graph sizes and their times; only its points are used, with DeepInfer's own rule.
        cost: What was learnt beyond the curve.

    Raises:
        CurveError: If R alone is past the last point, where DeepInfer aborts.
    """
    num_requests = len(budget_rates)
    if num_requests > int(curve.tokens[-1]):
        raise CurveError(
            f"{num_requests} requests are past the last point of the curve, {int(curve.tokens[-1])} tokens"
        )
    by_rate = -np.sort(-budget_rates.ravel())
    expected = np.cumsum(np.concatenate([[num_requests], by_rate]), dtype=np.float32)
    size = num_requests + np.arange(len(expected))
    size = size[size <= curve.tokens[-1]]
    point = np.searchsorted(curve.tokens, size)
    step_ms = curve.step_ms[point] + max(0.0, cost.slope_ms) * curve.tokens[point] + cost.sampler_ms
    return int(np.argmax(expected[: len(size)].astype(np.float64) / step_ms))


def deepinfer_lengths(budget_rates: Floats, length_rates: Floats, curve: SpsCurve | None, cost: StepCost) -> Integers:
    """Return the verified drafts that `MTPVarlen::schedule` answers with; its `query_lengths` are one more.

    Args:
        budget_rates: Rates of round N-2, float64 [R, γ]: they decide how many drafts are verified in all.
        length_rates: Rates of round N-1, float64 [R, γ]: they decide whose.
        curve: None verifies every draft, as DeepInfer does without one.
        cost: What was learnt beyond the curve.

    Returns:
        Verified drafts, int64 [R].

    Raises:
        CurveError: If R is past the last point of the curve.
    """
    num_requests, gamma = length_rates.shape
    if curve is None:
        return np.full(num_requests, gamma, dtype=np.int64)
    budget = deepinfer_budget(budget_rates, curve, cost)
    order = np.argsort(-length_rates.ravel(), kind="stable")[:budget]
    return count_chosen(order // gamma, num_requests)


def deepinfer_device_lengths(confidence: npt.ArrayLike, remap: npt.ArrayLike, total_tokens: int) -> Integers:
    """Return the verified drafts after the device has redistributed the total by the newest confidences.

    Survivals are running products of the confidences gathered by `remap`; entries whose rank in the stable
    descending sort of the flattened [R, γ] is below `total_tokens` - R win.

    Args:
        confidence: c_k of the last round by its own order of requests, shape [M, γ].
        remap: Row of `confidence` for each request, int [R]; -1 for a new request, whose rates are 0.
        total_tokens: Query tokens the scheduler decided on, R + verified drafts.

    Returns:
        Verified drafts, int64 [R].
    """
    rows = np.asarray(remap, dtype=np.int64)
    survival = np.cumprod(np.asarray(confidence, dtype=np.float32), axis=1, dtype=np.float32)
    rates: Float32 = np.where((rows == NEW_REQUEST)[:, None], np.float32(0), survival[rows])
    budget = max(0, total_tokens - len(rows))
    order = np.argsort(-rates.ravel(), kind="stable")[:budget]
    return count_chosen(order // rates.shape[1], len(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepInferVarlen:
    """DeepInfer's asynchronous schedule: the total from the round before, the lengths from the round itself.

    The drafts of a new request have no rates on either side yet: 1 when the total is decided, 0 on the device.

    Attributes:
        curve: Graph sizes and their times.
        cost: Slope and sampler time; zero until measured.
    """

    curve: SpsCurve
    cost: StepCost

    @property
    def name(self) -> str:
        """`deepinfer`."""
        return "deepinfer"

    @property
    def anticipates(self) -> bool:
        """False: the total is fixed by earlier rounds, and within it a draft outranks its continuation."""
        return False

    @property
    def uses_confidence(self) -> bool:
        """True."""
        return True

    def verified_lengths(self, step: Step) -> Integers:
        """Return the lengths the device allocates, int64 [R].

        Raises:
            CurveError: If R is past the last point of the curve.
        """
        num_requests = step.num_requests
        new = np.isnan(step.lagged_survival[:, 0])
        rates = fill_missing_rates(step.lagged_survival, np.ones(num_requests, dtype=bool))
        total = num_requests + deepinfer_budget(rates, self.curve, self.cost)
        remap = np.where(new, NEW_REQUEST, np.arange(num_requests))
        return deepinfer_device_lengths(step.confidence, remap, total)
