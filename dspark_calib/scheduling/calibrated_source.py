"""Calibrated confidences of a trace from a calibration file: each prompt held out where the file knows how."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.file import Calibration, check_fits_trace
from dspark_calib.errors import CalibrationFileError
from dspark_calib.scheduling.confidence_source import Confidences, calibrated_confidences
from dspark_calib.trace import PromptClusters, Rounds, Trace, assign_folds

OUT_OF_FOLD = "out_of_fold"
INDEPENDENT = "independent"
IN_SAMPLE = "in_sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedSource:
    """Calibrated confidences and how they relate to the trace.

    Attributes:
        confidences: Of every row.
        evaluation: `out_of_fold`, `independent` or `in_sample`.
    """

    confidences: Confidences
    evaluation: str


def calibrate_trace(trace: Trace, rounds: Rounds, calibration: Calibration) -> CalibratedSource:
    """Apply a calibration to the rows of a trace.

    On the trace it was fitted on, each prompt takes the temperatures fitted without it; on any other, all rows take
    the shipped ones.

    Args:
        trace: For its provenance and content hash.
        rounds: Its rows.
        calibration: The file's content.

    Raises:
        CalibrationFileError: If it is of another checkpoint or block size.
    """
    check_belongs(trace, calibration)
    if calibration.trace_hash is None or calibration.trace_hash != trace.content_hash:
        return CalibratedSource(
            confidences=calibrated_confidences(rounds, calibration.temperatures), evaluation=INDEPENDENT
        )
    if calibration.cross_fit is None:
        return CalibratedSource(
            confidences=calibrated_confidences(rounds, calibration.temperatures), evaluation=IN_SAMPLE
        )
    cross = calibration.cross_fit
    fold = fold_of_rows(rounds, cross.folds, cross.seeds[0])
    held_out = calibrated_confidences(rounds, cross.temperatures[0], fold)
    return CalibratedSource(confidences=held_out, evaluation=OUT_OF_FOLD)


def fold_of_rows(rounds: Rounds, folds: int, seed: int) -> npt.NDArray[np.int16]:
    """Return the fold of each row by its prompt, int16 [n]."""
    clusters = PromptClusters()
    cluster = clusters.assign(rounds)
    return assign_folds(clusters.keys, folds, seed)[cluster]


def check_belongs(trace: Trace, calibration: Calibration) -> None:
    """Refuse a calibration of another drafter, target, confidence or block size; what is not recorded is not compared.

    Raises:
        CalibrationFileError: Naming what differs.
    """
    check_fits_trace(calibration, trace.gamma, trace.name)
    provenance = trace.provenance
    pairs = {
        "drafter": (calibration.drafter.content_hash, provenance.drafter.content_hash),
        "target": (calibration.target.content_hash, provenance.target.content_hash),
        "confidence source": (calibration.confidence_source, provenance.confidence_source),
    }
    for what, (fitted, traced) in pairs.items():
        if fitted is not None and traced is not None and fitted != traced:
            raise CalibrationFileError(
                f"the calibration was fitted on another {what} ({fitted}) than {trace.name} was collected with "
                f"({traced}); fit one on a trace of this checkpoint"
            )
