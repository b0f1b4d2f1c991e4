"""Has live traffic left what the temperatures were fitted on?

Three questions, each answered by a permutation test that keeps prompts whole: did the confidences move, did
acceptance given the prefix move, did the error of the temperatures in force move. Holm over the three keeps
the rate of false alarms at 2.5 %.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dspark_calib.calibration import Calibration, evaluate
from dspark_calib.calibration.file import check_fits_trace
from dspark_calib.decision.advice import Advice, advise
from dspark_calib.decision.baseline import scores_in_view
from dspark_calib.decision.cluster_sums import ClusterSums, compute_cluster_sums
from dspark_calib.decision.drift_positions import DriftPosition, compute_drift_positions
from dspark_calib.decision.drift_tests import ALPHA, DriftTest, compute_drift_tests
from dspark_calib.decision.estimate_at_limit import smallest_detectable
from dspark_calib.decision.gate import view_of
from dspark_calib.decision.outcome import EXIT_CODES, Outcome
from dspark_calib.errors import IncompatibleTraces
from dspark_calib.trace import Trace

SCHEMA = "dspark-calib/drift/1"
BLIND_ABOVE = 0.05  # a change of the bias that must show, or the answer stays open
_RAW_JUDGED = "No calibration was given: the bias and ECE are those of raw confidences."
_BLOCKS = "A trace has no prompt ids: blocks of 100 rounds stand in for prompts, so chance may look like drift."


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Traffic against the reference.

    Attributes:
        tests: The three questions.
        positions: What moved, position by position.
        advice: What to do.
        view: `calibrated` where the temperatures of a calibration were in force, else `raw`.
        reference_rounds: Rounds of the reference.
        traffic_rounds: Rounds of the traffic.
        reference_prompts: Prompts, or blocks that stand in.
        traffic_prompts: Prompts, or blocks that stand in.
        smallest_detectable: The change of the bias that shows with 90 % probability at every position; None
            where a position has no interval.
        warnings: What a reader must know.
    """

    tests: tuple[DriftTest, ...]
    positions: tuple[DriftPosition, ...]
    advice: Advice
    view: str
    reference_rounds: int
    traffic_rounds: int
    reference_prompts: int
    traffic_prompts: int
    smallest_detectable: float | None
    warnings: tuple[str, ...]

    @property
    def moved(self) -> tuple[str, ...]:
        """Names of the tests that found a difference."""
        return tuple(test.name for test in self.tests if test.moved)

    @property
    def outcome(self) -> Outcome:
        """Fail means drifted; inconclusive, that too little was seen to say that it has not."""
        if self.moved:
            return Outcome.FAIL
        blind = self.smallest_detectable is None or self.smallest_detectable > BLIND_ABOVE
        return Outcome.INCONCLUSIVE if blind else Outcome.PASS

    @property
    def exit_code(self) -> int:
        """0 no drift, 1 drifted, 3 inconclusive."""
        return EXIT_CODES[self.outcome]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, `schema` first."""
        return {
            "schema": SCHEMA,
            "outcome": self.outcome.value,
            "exit_code": self.exit_code,
            "moved": list(self.moved),
            "advice": self.advice.to_dict(),
            "tests": [{"name": t.name, "p_value": t.p_value, "level": t.level, "moved": t.moved} for t in self.tests],
            "view": self.view,
            "reference": {"rounds": self.reference_rounds, "prompts": self.reference_prompts},
            "traffic": {"rounds": self.traffic_rounds, "prompts": self.traffic_prompts},
            "smallest_detectable": self.smallest_detectable,
            "warnings": list(self.warnings),
            "positions": [position.to_dict() for position in self.positions],
        }


def compute_drift(reference: Trace, traffic: Trace, calibration: Calibration | None = None, *, seed: int = 0) -> Drift:
    """Compare traffic with the reference.

    Args:
        reference: What the temperatures were fitted on.
        traffic: What the engine sees now.
        calibration: In force, or None for raw confidences.
        seed: Of the permutations and resamples.

    Raises:
        IncompatibleTraces: If γ differs.
        CalibrationFileError: If the number of temperatures is not γ.
        InsufficientData: If a trace has fewer than two prompts.
    """
    if reference.gamma != traffic.gamma:
        raise IncompatibleTraces(f"{reference.name} has γ = {reference.gamma}, {traffic.name} has γ = {traffic.gamma}")
    if calibration is not None:
        check_fits_trace(calibration, reference.gamma, reference.name)
    temperatures = None if calibration is None else calibration.temperatures
    old, new = (compute_cluster_sums(trace, temperatures) for trace in (reference, traffic))
    evaluations = [evaluate(trace, calibration, seed=seed) for trace in (reference, traffic)]
    view = view_of(evaluations[1])
    before, after = (scores_in_view(e.groups[0], view) or e.groups[0].raw for e in evaluations)
    rng = np.random.default_rng(seed)
    tests, psi_floor = compute_drift_tests(old, new, rng)
    positions = compute_drift_positions(old, new, (before, after), psi_floor, rng)
    moved = {test.name for test in tests if test.moved}
    return Drift(
        tests=tests,
        positions=positions,
        advice=advise(moved, positions, evaluations[1].groups[0].acceptance, traffic, calibration, seed=seed),
        view=view,
        reference_rounds=old.rounds,
        traffic_rounds=new.rounds,
        reference_prompts=old.clusters,
        traffic_prompts=new.clusters,
        smallest_detectable=_detectable(positions),
        warnings=_warnings(view, old, new),
    )


def _detectable(positions: tuple[DriftPosition, ...]) -> float | None:
    errors = [position.bias_change.se for position in positions]
    level = ALPHA / len(positions)
    known = [smallest_detectable(se, level) for se in errors if se is not None]
    return max(known) if len(known) == len(errors) else None


def _warnings(view: str, old: ClusterSums, new: ClusterSums) -> tuple[str, ...]:
    said = [_RAW_JUDGED] if view == "raw" else []
    if not (old.by_prompt and new.by_prompt):
        said.append(_BLOCKS)
    if old.cut or new.cut:
        said.append(
            f"A scheduler cut {old.cut} rounds of the reference and {new.cut} of the traffic: which positions were "
            "observed depends on confidence, so a change of the scheduler may look like drift."
        )
    return tuple(said)
