"""Prints a simulation: a table of replays for each concurrency, and what to run."""

from typing import TYPE_CHECKING

from rich.table import Table

from dspark_calib_cli.console import RESULTS, print_table

if TYPE_CHECKING:
    from dspark_calib.scheduling.policy_calibration_record import PolicyCalibration
    from dspark_calib.scheduling.prompt_ratio import Interval, RatioChange
    from dspark_calib.scheduling.recommendation import Recommendation
    from dspark_calib.scheduling.simulation import Simulation


def print_simulation(simulation: "Simulation") -> None:
    """Print everything a person needs to choose a policy."""
    judged = {None: "raw only", "out_of_fold": "calibrated out of fold", "independent": "calibrated on another trace"}
    RESULTS.print(
        f"Replay of {simulation.trace}, {judged.get(simulation.evaluation, 'calibrated in-sample')}.", markup=False
    )
    for concurrency in simulation.concurrencies:
        print_table(_replays(simulation, concurrency))
    RESULTS.print("± 95 % by prompt; * on the Pareto front of its confidences.\n", markup=False)
    for recommendation in simulation.recommendations:
        _print_recommendation(f"At concurrency {recommendation.concurrency}", recommendation)
    if simulation.min_user_speed is not None:
        bound = f"With at least {simulation.min_user_speed:g} tokens/s for every user"
        if simulation.best_under_sla is None:
            RESULTS.print(f"{bound}: no lossless policy reaches it at the concurrencies tried.", markup=False)
        elif simulation.best_under_sla in simulation.recommendations:
            RESULTS.print(f"{bound}: the choice at concurrency {simulation.best_under_sla.concurrency}.", markup=False)
        else:
            best = simulation.best_under_sla
            _print_recommendation(f"{bound}: concurrency {best.concurrency}", best)
    for fitted in simulation.policy_calibrations:
        print_table(_refit(fitted))


def _refit(fitted: "PolicyCalibration") -> Table:
    words = {"fixed_point": "a fixed point", "within_noise": "rest within the noise", "still_moving": "no rest"}
    table = Table(
        title=f"Fitted for {fitted.policy} at concurrency {fitted.concurrency}: {words[fitted.outcome]} after "
        f"{len(fitted.passes)} passes; throughput {_change(fitted.throughput_change)}",
        box=None,
        padding=(0, 1, 0, 0),
        title_justify="left",
    )
    for name in ("position", "T loop", "T policy", "moved", "ECE raw", "ECE loop T", "ECE policy T"):
        table.add_column(name, justify="right")
    for position in fitted.positions():
        table.add_row(
            str(position.position),
            f"{position.loop_temperature:.3f}",
            f"{position.policy_temperature:.3f}",
            "clearly" if position.clearly_shifted else "",
            *("" if ece is None else f"{ece:.4f}" for ece in position.eces),
        )
    return table


def _replays(simulation: "Simulation", concurrency: int) -> Table:
    table = Table(title=f"Concurrency {concurrency}", box=None, padding=(0, 1, 0, 0), title_justify="left")
    for name in ("policy", "confidence"):
        table.add_column(name, no_wrap=True)
    for name in ("budget", "τ pred.", "τ real", "tokens/s", "±", "per user", "regret"):
        table.add_column(name, justify="right", no_wrap=True)
    for replay in (r for r in simulation.replays if r.concurrency == concurrency):
        regret = simulation.regret_of(replay)
        table.add_row(
            replay.policy,
            replay.confidence,
            f"{replay.budget_per_request:.2f}",
            f"{replay.predicted_accepted_length:.3f}",
            f"{replay.realised_accepted_length:.3f}",
            f"{replay.throughput:.1f}{'*' if simulation.on_pareto_front(replay) else ' '}",
            _half_width(replay.throughput_interval),
            f"{replay.per_user_speed:.1f}",
            "" if regret is None else f"{regret.loss.value:z.2%}",
        )
    return table


def _print_recommendation(heading: str, best: "Recommendation") -> None:
    choice = f"{best.policy} on {best.temperatures} confidences, γ = {best.gamma}"
    lines = [f"{heading}: {choice}: {best.throughput:.1f} tokens/s, {best.per_user_speed:.1f} a user."]
    if best.calibration_gain is not None:
        lines.append(f"  Calibration changes throughput by {_change(best.calibration_gain)}.")
    lines += [f"  {reason[0].upper()}{reason[1:]}." for reason in best.reasons]
    RESULTS.print("\n".join(lines), markup=False)


def _change(change: "RatioChange") -> str:
    ends = "" if change.interval is None else f" ({change.interval.low:+z.2%} … {change.interval.high:+z.2%})"
    return f"{change.value:+z.2%}{ends}"


def _half_width(interval: "Interval | None") -> str:
    return "" if interval is None else f"{interval.half_width:.1f}"
