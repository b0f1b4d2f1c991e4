"""The calibration file of temperatures that were fitted for a policy."""

from dspark_calib.calibration.file import Calibration
from dspark_calib.calibration.tables import CrossFit
from dspark_calib.scheduling.policy_calibration import FOLDS
from dspark_calib.scheduling.policy_calibration_record import PolicyCalibration
from dspark_calib.trace import Trace


def calibration_for_policy(trace: Trace, fitted: PolicyCalibration) -> Calibration:
    """Return the last pass as a calibration: engines load it, `simulate` on the same trace holds prompts out.

    Args:
        trace: The trace it was fitted on.
        fitted: The passes.
    """
    last, provenance = fitted.passes[-1], trace.provenance
    before, after = _all_defined(last.ece_raw), _all_defined(last.ece)
    cross_fit = CrossFit(
        seeds=(fitted.seed,),
        folds=FOLDS,
        temperatures=(last.by_fold,),
        ece_after=(last.ece,),
        rounds=last.rounds_fitted,
    )
    return Calibration(
        temperatures=fitted.temperatures,
        dataset="+".join(provenance.prompt_files) or trace.name,
        num_samples=last.rounds_fitted,
        ece_before=before if after is not None else None,
        ece_after=after if before is not None else None,
        target=provenance.target,
        drafter=provenance.drafter,
        confidence_source=provenance.confidence_source,
        label_law=provenance.label_law,
        sampling_temperature=provenance.temperature,
        trace_hash=trace.content_hash,
        prompts=provenance.prompts,
        seed=fitted.seed,
        fit=last.fit,
        cross_fit=cross_fit,
        reason=f"fitted on the rounds of {fitted.policy} at concurrency {fitted.concurrency} ({fitted.outcome})",
    )


def _all_defined(values: tuple[float | None, ...]) -> tuple[float, ...] | None:
    defined = tuple(value for value in values if value is not None)
    return defined if len(defined) == len(values) else None
