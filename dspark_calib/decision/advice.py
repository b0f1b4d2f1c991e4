"""What to do about drift, in words: keep, refit, draft shorter, or do not draft.

The order follows deployment practice for confidence-scheduled drafting: an acceptance that no longer pays
outweighs any calibration (fall back to one draft, as multi-token prediction heads serve, or to none); a
calibration that is off is fitted again; everything else is kept.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from dspark_calib.calibration import Calibration, evaluate, fit_calibration
from dspark_calib.decision.drift_positions import DriftPosition
from dspark_calib.errors import DsparkCalibError
from dspark_calib.metrics import Acceptance
from dspark_calib.trace import Trace

# Below one accepted draft in five a draft mostly burns verification that other requests could use. Where the
# line lies on a given machine is for its speed curve to say: `dspark-calib simulate`.
WORTHLESS_BELOW = 0.2
USELESS_BELOW = 0.6  # AUROC: chance is 0.5


class Action(StrEnum):
    """What to do."""

    KEEP = "keep"
    REFIT = "refit"
    SHORTER = "shorter_draft"
    NONE = "no_draft"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A recommendation.

    Attributes:
        action: What to do.
        reason: Why, in a sentence or two.
        temperatures: The refitted T_k where the action is `refit`, else None.
    """

    action: Action
    reason: str
    temperatures: tuple[float, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as JSON values."""
        temperatures = None if self.temperatures is None else list(self.temperatures)
        return {"action": self.action.value, "reason": self.reason, "temperatures": temperatures}


def advise(
    moved: Collection[str],
    positions: tuple[DriftPosition, ...],
    acceptance: Acceptance,
    traffic: Trace,
    calibration: Calibration | None,
    *,
    seed: int,
) -> Advice:
    """Choose what to do.

    Args:
        moved: Names of the drift tests that found a difference.
        positions: What moved where.
        acceptance: Of the traffic.
        traffic: To refit on.
        calibration: In force, or None.
        seed: Of the refit's folds.
    """
    worthless = _worthless_from(acceptance)
    if worthless == 1:
        return Advice(action=Action.NONE, reason=_worthless_reason(acceptance, 1, "switch drafting off here"))
    if worthless == 2:
        return Advice(action=Action.SHORTER, reason=_worthless_reason(acceptance, 2, "serve one draft a step (MTP-1)"))
    if _ranks_nothing(positions):
        return Advice(
            action=Action.SHORTER,
            reason=f"the confidences rank accepted above rejected drafts hardly better than chance (AUROC below "
            f"{USELESS_BELOW}), so a scheduler cannot choose by them: serve a short fixed draft",
        )
    if not moved:
        return Advice(action=Action.KEEP, reason="nothing moved more than chance: keep the temperatures")
    if "calibration" in moved:
        return _refit(positions, traffic, calibration, seed)
    return Advice(
        action=Action.KEEP,
        reason=f"{' and '.join(sorted(moved))} moved, but the temperatures in force are as right on this traffic "
        "as on the reference: keep them",
    )


def _worthless_from(acceptance: Acceptance) -> int | None:
    """Return the first position whose prefix acceptance lies below the line with its whole interval."""
    for position, estimate in enumerate(acceptance.prefix, start=1):
        if estimate.high is not None and estimate.high < WORTHLESS_BELOW:
            return position
    return None


def _ranks_nothing(positions: tuple[DriftPosition, ...]) -> bool:
    highs = [position.auroc.high for position in positions]
    return bool(highs) and all(high is not None and high < USELESS_BELOW for high in highs)


def _worthless_reason(acceptance: Acceptance, position: int, what: str) -> str:
    rate = acceptance.prefix[position - 1].value or 0.0
    return f"only {rate:.0%} of blocks get draft {position} accepted: {what} (dspark-calib simulate weighs it by speed)"


def _refit(positions: tuple[DriftPosition, ...], traffic: Trace, calibration: Calibration | None, seed: int) -> Advice:
    worst = max(positions, key=lambda p: abs(p.bias_change.value or 0.0))
    moved = f"the error of the temperatures moved most at position {worst.position} ({worst.bias_change.value:+.3f})"
    try:
        fitted = fit_calibration(traffic, seed=seed)
    except DsparkCalibError as error:
        return Advice(action=Action.KEEP, reason=f"{moved}, but this traffic cannot be fitted on: {error}")
    gain = _held_out_gain(traffic, calibration, fitted, seed)
    if gain is None or gain >= 0:
        return Advice(
            action=Action.KEEP,
            reason=f"{moved}, but temperatures fitted on this traffic are no better out of fold: keep those in force",
        )
    table = ", ".join(f"{t:.3g}" for t in fitted.temperatures)
    return Advice(
        action=Action.REFIT,
        reason=f"{moved}; refitted on this traffic (T = {table}) the mean ECE changes by {gain:+.3f} out of fold",
        temperatures=fitted.temperatures,
    )


def _held_out_gain(traffic: Trace, current: Calibration | None, fitted: Calibration, seed: int) -> float | None:
    """Return the mean ECE of the refit, out of fold, minus that of the temperatures in force."""
    now = evaluate(traffic, current, seed=seed).groups[0]
    new = evaluate(traffic, fitted, seed=seed).groups[0]
    before, after = now.calibrated or now.raw, new.calibrated
    if after is None or before.mean_ece.value is None or after.mean_ece.value is None:
        return None
    change = after.mean_ece.value - before.mean_ece.value
    error = float(np.nanstd(after.draws.mean_ece - before.draws.mean_ece))
    return change if change < -error else 0.0
