"""The gate: may this drafter, with these temperatures, ship?

Every condition is asked at every position of every group. Failing is claimed under Holm's correction over
all checks, so that a gate without any fault fails in at most 2.5 % of runs; passing needs every single
check to pass, which needs no correction.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from dspark_calib.calibration import Evaluation
from dspark_calib.decision.baseline import Baseline, View
from dspark_calib.decision.check import Check
from dspark_calib.decision.conditions import Conditions
from dspark_calib.decision.estimate_at_limit import ALPHA
from dspark_calib.decision.judgement import judge
from dspark_calib.decision.multiplicity import holm_levels
from dspark_calib.decision.outcome import EXIT_CODES, Outcome, combine_outcomes
from dspark_calib.decision.question import ask

SCHEMA = "dspark-calib/gate/1"
InconclusivePolicy = Literal["pass", "fail"]
_RAW_JUDGED = "No calibration was given: raw confidences were judged."
_IN_SAMPLE = "The temperatures were fitted on these rounds (in-sample): the numbers flatter them."


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The result of a gate.

    Attributes:
        checks: Conditions × groups × positions, in that order within each group.
        view: Whether raw or calibrated confidences were judged.
        evaluation: `out_of_fold`, `independent` or `in_sample`; None for raw confidences.
        rounds: Rounds judged.
        prompts: Prompts, or what stands in for them.
        clusters: What the intervals are clustered by.
        baseline: What `--max-regression` was held against, or None.
        inconclusive: What an open check was asked to count as; None leaves it open. Undefined checks stay open.
        warnings: What a reader must know beside the outcome.
    """

    checks: tuple[Check, ...]
    view: View
    evaluation: str | None
    rounds: int
    prompts: int
    clusters: str
    baseline: str | None
    inconclusive: InconclusivePolicy | None
    warnings: tuple[str, ...]

    @property
    def outcome(self) -> Outcome:
        """The outcome of the whole."""
        return combine_outcomes(self.counted_as(check) for check in self.checks)

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 3 inconclusive."""
        return EXIT_CODES[self.outcome]

    @property
    def counts(self) -> dict[Outcome, int]:
        """Number of checks by outcome."""
        found = Counter(check.outcome for check in self.checks)
        return {outcome: found[outcome] for outcome in Outcome}

    @property
    def smallest_detectable(self) -> float | None:
        """The regression that shows with 90 % probability whichever position it strikes, or None."""
        sizes = [check.smallest_detectable for check in self.checks if check.smallest_detectable is not None]
        return max(sizes, default=None)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a person must know to read the checks."""
        said = [f"{len(self.checks)} checks share one error rate (Holm); intervals rest on {self.clusters}."]
        if any(check.plug_in is not None for check in self.checks):
            said.append("The ECE is shown without what sampling noise alone would give (see its floor in the report).")
        if self.evaluation is not None:
            said.append(f"Calibrated numbers are {self.evaluation.replace('_', ' ')}.")
        if self.smallest_detectable is not None:
            said.append(
                f"Against {self.baseline}, these {self.prompts} prompts would show an increase of the ECE by "
                f"{self.smallest_detectable:.3f}, at whichever position, with 90 % probability."
            )
        return tuple(said)

    def counted_as(self, check: Check) -> Outcome:
        """Return what a check counts as under `--inconclusive`; what is undefined never passes."""
        if check.outcome is not Outcome.INCONCLUSIVE or self.inconclusive is None:
            return check.outcome
        if check.undefined and self.inconclusive == "pass":
            return Outcome.INCONCLUSIVE
        return Outcome(self.inconclusive)

    def worst(self, most: int) -> tuple[Check, ...]:
        """Return the checks that did not pass, failed before open, farthest from the limit first."""
        order = {Outcome.FAIL: 0, Outcome.INCONCLUSIVE: 1, Outcome.PASS: 2}
        not_passed = [check for check in self.checks if self.counted_as(check) is not Outcome.PASS]
        return tuple(sorted(not_passed, key=lambda c: (order[self.counted_as(c)], -c.excess))[:most])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values, `schema` first."""
        return {
            "schema": SCHEMA,
            "outcome": self.outcome.value,
            "exit_code": self.exit_code,
            "view": self.view,
            "evaluation": self.evaluation,
            "rounds": self.rounds,
            "prompts": self.prompts,
            "clusters": self.clusters,
            "baseline": self.baseline,
            "inconclusive": self.inconclusive,
            "multiplicity": {"method": "holm", "checks": len(self.checks), "alpha": ALPHA},
            "counts": {outcome.value: count for outcome, count in self.counts.items()},
            "smallest_detectable": self.smallest_detectable,
            "warnings": list(self.warnings),
            "remarks": list(self.remarks),
            "checks": [check.to_dict() | {"counted_as": self.counted_as(check).value} for check in self.checks],
        }


def compute_gate(
    evaluation: Evaluation,
    conditions: Conditions,
    *,
    baseline: Baseline | None = None,
    inconclusive: InconclusivePolicy | None = None,
) -> Gate:
    """Judge an evaluated trace.

    Args:
        evaluation: Of the trace, with the calibration if there is one.
        conditions: At least one limit.
        baseline: What `max_regression` is held against, in the same view.
        inconclusive: What an open check counts as; None leaves it open.

    Raises:
        ConfigError: If nothing is asked, or what is asked needs a baseline or calibration that is not there.
    """
    asked = conditions.asked
    view = view_of(evaluation)
    conditions.check_answerable(has_baseline=baseline is not None, has_calibration=view == "calibrated")
    questions = ask(evaluation, asked, view, baseline)
    p_values = [1.0 if q.measured is None else q.measured.p_above(q.turned_limit) for q in questions]
    levels = holm_levels(p_values, ALPHA)
    everything = evaluation.groups[0]
    return Gate(
        checks=tuple(judge(question, level) for question, level in zip(questions, levels, strict=True)),
        view=view,
        evaluation=evaluation.evaluation if view == "calibrated" else None,
        rounds=everything.rounds,
        prompts=everything.prompts,
        clusters=evaluation.clusters,
        baseline=baseline.name if baseline is not None else None,
        inconclusive=inconclusive,
        warnings=_warnings(evaluation, view),
    )


def view_of(evaluation: Evaluation) -> View:
    """Return which confidences a gate judges: calibrated where there is a calibration."""
    return "raw" if evaluation.groups[0].calibrated is None else "calibrated"


def _warnings(evaluation: Evaluation, view: View) -> tuple[str, ...]:
    own = (_RAW_JUDGED,) if view == "raw" else (_IN_SAMPLE,) if evaluation.evaluation == "in_sample" else ()
    return (*own, *evaluation.warnings)
