"""The whole of `gate`: open traces, evaluate them, hold them against limits and a baseline."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dspark_calib.calibration import Calibration, evaluate, read_calibration
from dspark_calib.decision.baseline import Baseline, View, baseline_from_evaluation, read_baseline_report
from dspark_calib.decision.conditions import Conditions
from dspark_calib.decision.gate import Gate, InconclusivePolicy, compute_gate, view_of
from dspark_calib.errors import CalibrationFileError
from dspark_calib.trace import Trace, combine_traces, open_trace

GroupBy = Literal["domain", "dataset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateInputs:
    """Where a gate reads from.

    Attributes:
        traces: Trace folders, judged together.
        calibration: Calibration file, or None for raw confidences.
        baseline: An earlier trace folder or report.json, or None.
    """

    traces: Sequence[Path]
    calibration: Path | None = None
    baseline: Path | None = None


def gate_traces(
    inputs: GateInputs,
    conditions: Conditions,
    *,
    by: GroupBy | None = None,
    inconclusive: InconclusivePolicy | None = None,
    allow_mixed: bool = False,
    seed: int = 0,
) -> Gate:
    """Judge traces.

    Args:
        inputs: Files and folders.
        conditions: At least one limit.
        by: Groups to judge beside the whole.
        inconclusive: What an open check counts as; None leaves it open.
        allow_mixed: Join traces that differ in checkpoint, law or policy.
        seed: Of the bootstrap.

    Raises:
        DsparkCalibError: If a file is missing or malformed, or nothing can be judged.
    """
    conditions.check_answerable(
        has_baseline=inputs.baseline is not None, has_calibration=inputs.calibration is not None
    )
    trace = combine_traces([open_trace(path) for path in inputs.traces], allow_mixed=allow_mixed)
    calibration = None if inputs.calibration is None else read_calibration(inputs.calibration)
    if calibration is not None and calibration.gamma != trace.gamma:
        raise CalibrationFileError(
            f"{inputs.calibration} holds {calibration.gamma} temperatures, {trace.name} has γ = {trace.gamma}"
        )
    evaluation = evaluate(trace, calibration, by=by, seed=seed)
    baseline = None
    if inputs.baseline is not None:
        baseline = _baseline(inputs.baseline, trace, calibration, view_of(evaluation), by, seed)
    return compute_gate(evaluation, conditions, baseline=baseline, inconclusive=inconclusive)


def _baseline(
    path: Path, trace: Trace, calibration: Calibration | None, view: View, by: GroupBy | None, seed: int
) -> Baseline:
    """Read the baseline; a trace is evaluated under the same temperatures, unless its γ is another."""
    if not path.is_dir():
        return read_baseline_report(path, view)
    earlier = open_trace(path)
    fitting = calibration if earlier.gamma == trace.gamma else None
    return baseline_from_evaluation(evaluate(earlier, fitting, by=by, seed=seed), view, str(path))
