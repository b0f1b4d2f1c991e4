"""Which verification policy for this load? Replay a trace with a measured speed curve.

    python examples/choose_policy.py TRACE-ALL SPS.json [CALIBRATION]

The trace must hold every anchor (`collect --anchors all`): a policy that verifies fewer drafts visits other anchors
than the full-length loop, and they must be there.
"""

import sys
from pathlib import Path

from dspark_calib.calibration import read_calibration
from dspark_calib.scheduling.curve_files import read_curve
from dspark_calib.scheduling.simulate_trace import simulate_trace
from dspark_calib.trace import open_trace


def compare_policies(trace: Path, sps: Path, calibration: Path | None = None) -> None:
    """Print tokens per second of each policy under raw, calibrated and perfect confidences, and the recommendation."""
    result = simulate_trace(
        open_trace(trace),
        read_curve(sps),
        None if calibration is None else read_calibration(calibration),
        concurrencies=(1, 8, 32),
        policies=("fixed", "threshold:0.5", "algorithm1"),
    )
    print(f"{'policy':<16}{'confidence':<12}{'requests':>8}{'tokens/s':>10}{'per user':>10}{'drafts':>8}")
    for run in result.replays:
        print(
            f"{run.policy:<16}{run.confidence:<12}{run.concurrency:>8}"
            f"{run.throughput:>10.1f}{run.per_user_speed:>10.1f}{run.budget_per_request:>8.2f}"
        )
    for choice in result.recommendations:
        print(f"{choice.concurrency} requests: {choice.policy}, {choice.temperatures} temperatures, γ = {choice.gamma}")
    for warning in result.warnings:
        print(f"note: {warning}")


if __name__ == "__main__":
    compare_policies(*map(Path, sys.argv[1:]))
