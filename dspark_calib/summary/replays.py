"""The replay of the trace under verification policies, in the shape of the report."""

from dspark_calib.metrics.estimate import UNDEFINED, Estimate
from dspark_calib.scheduling.prompt_ratio import Interval, RatioChange
from dspark_calib.scheduling.replay import ReplayResult
from dspark_calib.scheduling.simulation import Simulation
from dspark_calib.summary.contrasts import Advice, Throughput


def throughput_of(simulation: Simulation) -> tuple[Throughput, ...]:
    """Return every replay with its regret against the oracle."""
    regrets = {(r.policy, r.confidence, r.concurrency): r.loss for r in simulation.regrets}
    rows = []
    for replay in simulation.replays:
        loss = regrets.get((replay.policy, replay.confidence, replay.concurrency))
        regret = UNDEFINED if loss is None else _estimate(loss.value, loss.interval)
        rows.append(_throughput(replay, regret))
    return tuple(rows)


def advice_of(simulation: Simulation) -> tuple[Advice, ...]:
    """Return what to run at each concurrency."""
    return tuple(
        Advice(
            concurrency=r.concurrency,
            policy=r.policy,
            temperatures=r.temperatures,
            gamma=r.gamma,
            tokens_per_second=r.throughput,
            calibration_gain=_gain(r.calibration_gain),
            reasons=r.reasons,
        )
        for r in simulation.recommendations
    )


def _gain(change: RatioChange | None) -> Estimate:
    return UNDEFINED if change is None else _estimate(change.value, change.interval)


def _throughput(replay: ReplayResult, regret: Estimate) -> Throughput:
    return Throughput(
        policy=replay.policy,
        confidences=replay.confidence,  # type: ignore[arg-type] # one of three names
        concurrency=replay.concurrency,
        tokens_per_second=_estimate(replay.throughput, replay.throughput_interval),
        per_user=_estimate(replay.per_user_speed, replay.per_user_speed_interval),
        accepted_length=_estimate(replay.realised_accepted_length, replay.realised_accepted_length_interval),
        predicted_length=replay.predicted_accepted_length,
        budget=replay.budget_per_request,
        regret=regret,
    )


def _estimate(value: float, interval: Interval | None) -> Estimate:
    if interval is None:
        return Estimate(value=value)
    return Estimate(value=value, low=interval.low, high=interval.high)
