"""Temperatures for the policy that will run.

Cutting verification changes which anchors are visited, and with them the calibration. From a trace of every
anchor: fit on the rounds of a loop that verifies everything, replay the policy, fit again on the rounds it
visited, until the temperatures stay. Every prompt is scheduled and judged with temperatures fitted without it;
the shipped ones are fitted on all.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fitting.fit_record import Selection, TemperatureFit
from dspark_calib.calibration.fitting.sts import fit_sts
from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.errors import InsufficientData, PolicyError
from dspark_calib.metrics.ece import compute_ece
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.scheduling.calibrated_source import fold_of_rows
from dspark_calib.scheduling.confidence_source import Confidences, calibrated_confidences
from dspark_calib.scheduling.curve import SpsCurve
from dspark_calib.scheduling.policy import Integers, Policy
from dspark_calib.scheduling.policy_calibration_record import FittedPass, PolicyCalibration, Temperatures
from dspark_calib.scheduling.replay import ReplayResult, compute_replay
from dspark_calib.scheduling.responses import Responses, responses_of
from dspark_calib.scheduling.visits import Visits, visit_rounds
from dspark_calib.survival import observed_mask, prefix_labels
from dspark_calib.trace import Trace, assign_folds, visited_rows

FOLDS = 2
MAX_PASSES = 8
STILL = 0.01  # twice the finest step of the temperature grid


def calibrate_for_policy(
    trace: Trace,
    policy: Policy,
    curve: SpsCurve,
    *,
    concurrency: int,
    select: Selection = "parsimonious",
    seed: int = 0,
    on_pass: Callable[[], None] | None = None,
) -> PolicyCalibration:
    """Fit, replay, fit again on the rounds the policy visited, to a fixed point.

    Args:
        trace: Collected with `--anchors all`; all labels are known, so nothing is censored by the cuts.
        policy: What will run.
        curve: Speeds of the target.
        concurrency: R.
        select: How a temperature is chosen, as in `fit_sts`.
        seed: Of folds, replicates and the order of later passes through the responses.
        on_pass: Called after each fit and replay.

    Raises:
        CurveError: If R is beyond the curve.
        InsufficientData: If a fold has no prompt.
        PolicyError: If the trace does not hold every anchor.
    """
    curve.check_concurrency(concurrency)
    fitter = _Fitter(trace, policy, curve, concurrency, select, seed)
    rows = visited_rows(fitter.responses.rounds)
    passes: list[FittedPass] = []
    outcome = "still_moving"
    while len(passes) < MAX_PASSES:
        fitted, rows = fitter.run(rows, passes[0].by_fold if passes else None)
        passes.append(fitted)
        if on_pass is not None:
            on_pass()
        found = _outcome(passes)
        if found is not None:
            outcome = found
            break
    return PolicyCalibration(
        policy=policy.name, concurrency=concurrency, passes=tuple(passes), outcome=outcome, seed=seed
    )


def _outcome(passes: list[FittedPass]) -> str | None:
    """Return why to stop, None to go on."""
    if len(passes) < 2:
        return None
    before, last = passes[-2:]
    steps = zip(before.temperatures, last.temperatures, before.intervals, strict=True)
    moved = [(abs(new - old), ends is None or ends[0] <= new <= ends[1]) for old, new, ends in steps]
    if all(step <= STILL for step, _ in moved):
        return "fixed_point"
    return "within_noise" if all(inside for _, inside in moved) else None


class _Fitter:
    """What stays the same over the passes."""

    def __init__(
        self, trace: Trace, policy: Policy, curve: SpsCurve, concurrency: int, select: Selection, seed: int
    ) -> None:
        self.trace, self.policy, self.curve = trace, policy, curve
        self.concurrency, self.select, self.seed = concurrency, select, seed
        self.responses: Responses = responses_of(trace)
        if not self.responses.every_anchor:
            raise PolicyError(
                f"{trace.name} holds only loop anchors; fitting for a policy needs a trace of --anchors all"
            )
        self.fold = fold_of_rows(self.responses.rounds, FOLDS, seed)
        if len(np.unique(self.fold)) < FOLDS:
            raise InsufficientData(f"{trace.name}: too few prompts to hold some out; collect more prompts")

    def run(self, rows: Integers, loop_fit: tuple[Temperatures, ...] | None) -> tuple[FittedPass, Integers]:
        """Fit on the rows, replay the policy and return the pass with the rows it visited."""
        shipped, by_fold = self._fit(rows)
        confidences = calibrated_confidences(self.responses.rounds, by_fold, self.fold)
        visits, replay = self._replay(confidences)
        visited = visits.rows_of_first_pass(self.responses.count)
        fitted = FittedPass(
            fit=shipped,
            by_fold=by_fold,
            rounds_fitted=len(rows),
            rows_visited=len(visited),
            ece_raw=self._ece(((1.0,) * self.responses.gamma,) * FOLDS, visited),
            ece_of_loop_fit=self._ece(loop_fit or by_fold, visited),
            ece=self._ece(by_fold, visited),
            replay=replay,
        )
        return fitted, visited

    def _fit(self, rows: Integers) -> tuple[TemperatureFit, tuple[Temperatures, ...]]:
        """Return the fit on all prompts, and the temperatures without each fold."""
        judged = JudgedTrace(Trace.of(self.responses.rounds.take(rows), self.trace.provenance, self.trace.name))
        fold = assign_folds(list(judged.clusters.keys), FOLDS, self.seed)

        def fit(members: npt.NDArray[np.bool_] | None) -> TemperatureFit:
            return fit_sts(FitRows(judged, "cumulative", members), select=self.select, seed=self.seed)

        return fit(None), tuple(fit(fold != number).temperatures for number in range(FOLDS))

    def _replay(self, confidences: Confidences) -> tuple[Visits, ReplayResult]:
        largest = self.concurrency * (1 + self.responses.gamma)
        visits = visit_rounds(
            self.responses,
            confidences,
            self.policy,
            speeds=self.curve.speeds_by_tokens(largest),
            concurrency=self.concurrency,
            requests=max(self.responses.count, 2 * self.concurrency),
            seed=self.seed,
        )
        seconds, limit = self.curve.seconds_by_tokens(largest), self.curve.max_tokens
        replay = compute_replay(
            self.responses, confidences, visits, policy=self.policy.name, seconds=seconds, max_tokens=limit
        )
        return visits, replay

    def _ece(self, by_fold: tuple[Temperatures, ...], rows: Integers) -> tuple[float | None, ...]:
        """Return the ECE of each position on the rows, each prompt under temperatures fitted without it."""
        rounds = self.responses.rounds.take(rows)
        survival = calibrated_confidences(rounds, by_fold, self.fold[rows]).survival
        labels, seen = prefix_labels(rounds.accepted, rounds.gamma), observed_mask(rounds.observed, rounds.gamma)
        return tuple(
            compute_ece(survival[seen[:, k], k], labels[seen[:, k], k]) if seen[:, k].any() else None
            for k in range(rounds.gamma)
        )
