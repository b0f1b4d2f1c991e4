"""Temperatures: how they are fitted, judged, written and read.

`rows` are what a fit looks at and `fitting` finds their temperatures; `cross_fit` fits without each fold, `evaluate`
scores a trace raw and calibrated, `fit_calibration` is the whole of `fit-sts`, `file` holds its result.
"""

from dspark_calib.calibration.evaluate import Evaluation, GroupScores, evaluate
from dspark_calib.calibration.file import Calibration, read_calibration, write_calibration
from dspark_calib.calibration.fit_calibration import fit_calibration
from dspark_calib.calibration.fitting.fit_record import PositionFit, TemperatureFit
from dspark_calib.calibration.fitting.sts import fit_sts
from dspark_calib.calibration.rows.fit_rows import FitRows

__all__ = [
    "Calibration",
    "Evaluation",
    "FitRows",
    "GroupScores",
    "PositionFit",
    "TemperatureFit",
    "evaluate",
    "fit_calibration",
    "fit_sts",
    "read_calibration",
    "write_calibration",
]
