"""Temperatures: how they are fitted, judged, written and read.

`sts` fits (over `rows`, `objective`, `search`, `selection`), `cross_fit` fits without each fold, `evaluate`
scores a trace raw and calibrated, `fit_calibration` is the whole of `fit-sts`, `file` holds its result.
"""

from dspark_calib.calibration.evaluate import Evaluation, GroupScores, evaluate
from dspark_calib.calibration.file import Calibration, read_calibration, write_calibration
from dspark_calib.calibration.fit_calibration import fit_calibration
from dspark_calib.calibration.fit_record import PositionFit, TemperatureFit
from dspark_calib.calibration.rows import FitRows
from dspark_calib.calibration.sts import fit_sts

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
