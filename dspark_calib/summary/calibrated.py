"""What a calibration file says, in the shape of the report, and which temperatures judge which prompt."""

import numpy as np

from dspark_calib.calibration import Calibration
from dspark_calib.summary.details import TemperatureCurve, Transfer
from dspark_calib.summary.record import TemperatureTuple
from dspark_calib.summary.survey import Floats, TemperaturesOf
from dspark_calib.trace import Trace, assign_folds
from dspark_calib.trace.clusters import ClusterKey


def held_out_temperatures(calibration: Calibration, trace: Trace) -> TemperaturesOf:
    """Return the rule that gives each prompt its temperatures.

    On the trace of the fit each prompt is judged with temperatures fitted without it (those of the first
    assignment of folds); on any other trace all prompts take the shipped ones.
    """
    shipped = np.array(calibration.temperatures, dtype=np.float64)
    cross_fit = calibration.cross_fit
    if cross_fit is None or calibration.trace_hash != trace.content_hash:
        return lambda keys: np.broadcast_to(shipped, (len(keys), len(shipped)))
    by_fold = np.array(cross_fit.temperatures[0], dtype=np.float64)
    folds, seed = cross_fit.folds, cross_fit.seeds[0]

    def by_prompt(keys: list[ClusterKey]) -> Floats:
        return np.asarray(by_fold[assign_folds(keys, folds, seed)])

    return by_prompt


def temperature_tuple(calibration: Calibration, file: str) -> TemperatureTuple:
    """Return the shipped temperatures with their intervals, their spread over cross-fits and their flags."""
    fit, gamma, crossed = calibration.fit, len(calibration.temperatures), calibration.cross_fit
    return TemperatureTuple(
        values=calibration.temperatures,
        intervals=tuple(p.interval for p in fit.positions) if fit else (None,) * gamma,
        cross_fits=tuple(crossed.spread(k + 1) if crossed else None for k in range(gamma)),
        flags=tuple(p.flags for p in fit.positions) if fit else ((),) * gamma,
        file=file,
        content_hash=calibration.trace_hash,
        rounds=calibration.num_samples,
        selection=fit.select if fit else None,
        objective=fit.objective if fit else None,
        decision=calibration.decision,
        reason=calibration.reason,
    )


def temperature_curves(calibration: Calibration) -> tuple[TemperatureCurve, ...]:
    """Return the objective against the temperature of every position that was searched."""
    if calibration.fit is None:
        return ()
    return tuple(
        TemperatureCurve(
            position=fit.position,
            temperatures=fit.curve_temperatures,
            objective=fit.curve_objective,
            chosen=fit.temperature,
            interval=fit.interval,
            flags=fit.flags,
        )
        for fit in calibration.fit.positions
        if fit.curve
    )


def transfer_of(calibration: Calibration) -> Transfer | None:
    """Return the transfer matrix of a fit by group, if there was one."""
    transfer = calibration.transfer
    if transfer is None:
        return None
    return Transfer(fitted_on=transfer.groups, judged_on=transfer.groups, mean_ece=transfer.mean_ece)
