"""What DeepInfer 0.1.0 learns about step times while it serves: a slope per token and the sampler's time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dspark_calib.scheduling.curve import SpsCurve

KEPT_STEPS = 5000
STEPS_PER_GRAPH = 10
SAMPLER_WINDOW = 9
SAMPLER_STEPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Time beyond the curve: step time = curve + max(0, slope)·graph size + sampler.

    Attributes:
        slope_ms: Milliseconds a token.
        sampler_ms: Milliseconds a step, for verification, drafting and draft sampling.
    """

    slope_ms: float = 0.0
    sampler_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """One served step.

    Attributes:
        num_requests: Sequences in the batch.
        graph_size: Tokens of the CUDA graph that ran.
        forward_ms: Milliseconds of the target's forward.
        sampler_ms: Milliseconds of everything after it.
    """

    num_requests: int
    graph_size: int
    forward_ms: float
    sampler_ms: float


def estimate_step_cost(steps: Sequence[MeasuredStep], curve: SpsCurve, num_requests: int) -> StepCost:
    """Return what DeepInfer would add to the curve for a batch of `num_requests`.

    Slope: median over graphs of the median of (forward - curve)/size, graphs with at least 10 of the last 5,000
    steps; 0 until one qualifies. Sampler: median of the last 9 steps with as many requests, if there are 5, else
    over all kept steps, if there are 5, else 0.

    Args:
        steps: Served steps, oldest first.
        curve: The profiled times.
        num_requests: Requests of the batch to be scheduled.
    """
    kept = steps[-KEPT_STEPS:]
    return StepCost(slope_ms=_slope(kept, curve), sampler_ms=_sampler(kept, num_requests))


def _slope(steps: Sequence[MeasuredStep], curve: SpsCurve) -> float:
    profiled: Mapping[int, float] = dict(zip(curve.tokens.tolist(), curve.step_ms.tolist(), strict=True))
    excess: dict[int, list[float]] = {}
    for step in steps:
        if step.graph_size in profiled:
            per_token = (step.forward_ms - profiled[step.graph_size]) / step.graph_size
            excess.setdefault(step.graph_size, []).append(per_token)
    medians = [median(values) for values in excess.values() if len(values) >= STEPS_PER_GRAPH]
    return median(medians) if medians else 0.0


def _sampler(steps: Sequence[MeasuredStep], num_requests: int) -> float:
    same_batch = [step.sampler_ms for step in steps if step.num_requests == num_requests][-SAMPLER_WINDOW:]
    times = same_batch if len(same_batch) >= SAMPLER_STEPS else [step.sampler_ms for step in steps]
    return median(times) if len(times) >= SAMPLER_STEPS else 0.0
