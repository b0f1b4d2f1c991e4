"""Whether fitted temperatures are worth shipping, in a word and a sentence.

The temperatures in the file stay those of the fit; the decision says what the held-out numbers think of them.
"""

from dataclasses import replace

from dspark_calib.calibration.file import Calibration

ADOPT, KEEP_IDENTITY = "adopt", "keep_identity"


def decide(calibration: Calibration) -> Calibration:
    """Return the calibration with `decision` and `reason` filled from its held-out numbers."""
    decision, reason = _decision(calibration)
    return replace(calibration, decision=decision, reason=reason)


def _decision(calibration: Calibration) -> tuple[str, str]:
    if calibration.is_identity:
        return KEEP_IDENTITY, "no position shows a miscalibration that a temperature could mend: all stay at 1"
    if calibration.held_out is None:
        return ADOPT, "judged by nothing but the fit"
    change = calibration.held_out.mean_ece_change
    how = "in-sample" if calibration.held_out.evaluation == "in_sample" else "held out by prompt"
    if change.value is None:
        return KEEP_IDENTITY, "no position has an ECE to judge by"
    interval = "" if change.low is None or change.high is None else f" (95 %: {change.low:+.4f} to {change.high:+.4f})"
    said = f"mean ECE changes by {change.value:+.4f}{interval}, {how}"
    if change.value >= 0:
        return KEEP_IDENTITY, f"{said}: the temperatures help nothing on prompts they have not seen"
    if change.high is not None and change.high >= 0:
        return ADOPT, f"{said}: probably better; more prompts would settle it"
    return ADOPT, said
