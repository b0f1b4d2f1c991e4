"""Does a policy let a draft's own value decide whether it is verified? Checked on the confidences of a trace.

Draft x_j is seen by c_{j+1}, c_{j+2}, … but not by c_1..c_j. Verification stays lossless when the event "x_j is
admitted" is the same whatever those later confidences are (DSpark, Appendix A).
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dspark_calib.scheduling.confidence_source import Confidences
from dspark_calib.scheduling.policy import Floats, Integers, Policy, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Anticipation:
    """A decision that changed with confidences it must not depend on.

    Attributes:
        row: Row of the trace whose block it was.
        position: 1-based draft position j.
        lengths: Verified drafts of that request before and after.
        later_confidences: c_{j+1..γ} before and after.
    """

    row: int
    position: int
    lengths: tuple[int, int]
    later_confidences: tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NonAnticipationCheck:
    """What was tried and what changed.

    Attributes:
        policy: Its name.
        decisions: Admissions of single drafts that were tried again under other later confidences.
        violations: How many changed.
        example: One that did, or None.
    """

    policy: str
    decisions: int
    violations: int
    example: Anticipation | None

    @property
    def non_anticipating(self) -> bool:
        """Whether no decision changed."""
        return self.violations == 0


def check_non_anticipation(
    policy: Policy,
    confidences: Confidences,
    speeds: Floats,
    *,
    concurrency: int,
    rng: np.random.Generator,
    steps: int = 50,
) -> NonAnticipationCheck:
    """Replace what each draft's successors believe and see whether the draft's admission changes.

    Steps are drawn at random from the rows of the trace. For every request and position j the later confidences
    are replaced by 0, by 1 and by those of another row.

    Args:
        policy: What to check.
        confidences: Of n rows with γ ≥ 2.
        speeds: SPS(B) by B, at least R·(1 + γ) + 1 entries.
        concurrency: R.
        rng: Draws the steps.
        steps: How many steps to draw.
    """
    decisions = violations = 0
    example: Anticipation | None = None
    for _ in range(steps):
        rows, lagged, donors = rng.integers(len(confidences.survival), size=(3, concurrency))
        step = _step(confidences.conditional[rows], confidences.survival[lagged], speeds)
        before = policy.verified_lengths(step)
        for request in range(concurrency):
            tails = (0.0, 1.0, confidences.conditional[donors[request]])
            for position, tail in ((j, tail) for j in range(1, step.gamma) for tail in tails):
                changed = _with_tail(step, request, position, tail)
                after = policy.verified_lengths(changed)
                decisions += 1
                if (before[request] >= position) != (after[request] >= position):
                    violations += 1
                    example = example or _describe(
                        int(rows[request]), request, position, (before, after), step, changed
                    )
    return NonAnticipationCheck(policy=policy.name, decisions=decisions, violations=violations, example=example)


def _step(conditional: Floats, lagged: Floats, speeds: Floats) -> Step:
    survival = np.cumprod(conditional, axis=1, dtype=np.float64)
    return Step(confidence=conditional, survival=survival, lagged_survival=lagged, speeds=speeds)


def _with_tail(step: Step, request: int, position: int, tail: float | npt.NDArray[np.float64]) -> Step:
    conditional = step.confidence.copy()
    conditional[request, position:] = tail if isinstance(tail, float) else tail[position:]
    survival = np.cumprod(conditional, axis=1, dtype=np.float64)
    return replace(step, confidence=conditional, survival=survival)


def _describe(
    row: int, request: int, position: int, lengths: tuple[Integers, Integers], before: Step, after: Step
) -> Anticipation:
    first, second = (tuple(step.confidence[request, position:].tolist()) for step in (before, after))
    return Anticipation(
        row=row,
        position=position,
        lengths=(int(lengths[0][request]), int(lengths[1][request])),
        later_confidences=(first, second),
    )
