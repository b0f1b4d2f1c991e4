"""From a trace, a curve and maybe a calibration to a `Simulation`: what `simulate` and the report call."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dspark_calib.calibration.file import Calibration
from dspark_calib.scheduling.calibrated_source import calibrate_trace
from dspark_calib.scheduling.comparison import compute_simulation
from dspark_calib.scheduling.confidence_source import Confidences, oracle_confidences, raw_confidences
from dspark_calib.scheduling.curve import SpsCurve
from dspark_calib.scheduling.policies import DEFAULT_POLICIES, parse_policy
from dspark_calib.scheduling.policy_calibration import calibrate_for_policy
from dspark_calib.scheduling.responses import responses_of
from dspark_calib.scheduling.simulation import Simulation
from dspark_calib.trace import Trace

NO_ORACLE = "the trace has no acceptance_probs, so there is no oracle and no regret"
Progress = Callable[[int, int], None]


def simulate_trace(
    trace: Trace,
    curve: SpsCurve,
    calibration: Calibration | None = None,
    *,
    concurrencies: Sequence[int],
    policies: Sequence[str] = (),
    min_user_speed: float | None = None,
    requests: int | None = None,
    seed: int = 0,
    on_replay: Progress | None = None,
) -> Simulation:
    """Replay a trace under every policy with raw, calibrated and oracle confidences, as far as there are any.

    Args:
        trace: Collected with `--anchors all`; one of loop anchors replays `fixed` only.
        curve: Speeds of the target.
        calibration: Temperatures of the same checkpoint.
        concurrencies: R values.
        policies: Names as `parse_policy` takes them; empty for the usual ones: on a loop trace `fixed`, else
            `DEFAULT_POLICIES`.
        min_user_speed: Tokens per second a user must get.
        requests: Requests to finish in each replay; None: every response once, at least 2·R.
        seed: Of the order in which responses are drawn again.
        on_replay: Called after each replay with the number done and the number of all.

    Raises:
        CalibrationFileError: If the calibration is of another checkpoint.
        CurveError: If a concurrency is beyond the curve.
        PolicyError: If a policy is unknown, or shortens verification on a loop trace.
        TraceFormatError: If the trace cannot be replayed.
    """
    responses = responses_of(trace)
    sources: list[Confidences] = [raw_confidences(responses.rounds)]
    evaluation = None
    if calibration is not None:
        calibrated = calibrate_trace(trace, responses.rounds, calibration)
        sources.append(calibrated.confidences)
        evaluation = calibrated.evaluation
    warnings = list(_about(trace, curve))
    if responses.rounds.acceptance_probs is None:
        warnings.append(NO_ORACLE)
    else:
        sources.append(oracle_confidences(responses.rounds, sources[-1]))
    names = list(dict.fromkeys(policies)) or (DEFAULT_POLICIES if responses.every_anchor else DEFAULT_POLICIES[:1])
    total = len(names) * len(sources) * len(concurrencies)
    count = iter(range(1, total + 1))

    def tell() -> None:
        if on_replay is not None:
            on_replay(next(count), total)

    return compute_simulation(
        responses,
        sources,
        [parse_policy(name, curve, trace.gamma) for name in names],
        curve,
        concurrencies,
        trace=trace.name,
        evaluation=evaluation,
        min_user_speed=min_user_speed,
        requests=requests,
        seed=seed,
        warnings=warnings,
        on_replay=tell,
    )


def _about(trace: Trace, curve: SpsCurve) -> list[str]:
    target = trace.provenance.target.name
    if curve.conditions is None or target is None or curve.conditions.target == target:
        return []
    return [f"the curve was measured on {curve.conditions.target}, the trace was collected with {target}"]


def refit_recommended(
    trace: Trace, simulation: Simulation, *, seed: int = 0, on_pass: Callable[[], None] | None = None
) -> Simulation:
    """Return the simulation with temperatures fitted for each recommended policy at its concurrency.

    Args:
        trace: The trace that was simulated, with every anchor.
        simulation: What was found on it.
        seed: Of folds, replicates and drawing order.
        on_pass: Called after each fit and replay.

    Raises:
        InsufficientData: If too few prompts are there to hold some out.
        PolicyError: If the trace does not hold every anchor.
    """
    fitted = tuple(
        calibrate_for_policy(
            trace,
            parse_policy(choice.policy, simulation.curve, trace.gamma),
            simulation.curve,
            concurrency=choice.concurrency,
            seed=seed,
            on_pass=on_pass,
        )
        for choice in simulation.recommendations
    )
    return replace(simulation, policy_calibrations=fitted)
