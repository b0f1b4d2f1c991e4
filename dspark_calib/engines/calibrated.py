"""From a calibration to what an engine is given, and the check that it serves the drafter it was fitted on."""

from dspark_calib.calibration import Calibration
from dspark_calib.engines.table import TemperatureTable
from dspark_calib.errors import MissingExtra


def table_of(calibration: Calibration) -> TemperatureTable:
    """Return the part of a calibration that engines read."""
    return TemperatureTable(
        temperatures=calibration.temperatures,
        dataset=calibration.dataset,
        num_samples=calibration.num_samples,
        ece_before=calibration.ece_before,
        ece_after=calibration.ece_after,
    )


def drafter_hash(source: str) -> str:
    """Return the content hash of a drafter's folder or hub name, as traces carry it.

    Raises:
        MissingExtra: If torch is not installed.
        CheckpointError: If there is no such checkpoint.
    """
    try:
        from dspark_calib.drafters.checkpoint import find_checkpoint, hash_files, weight_files
    except ImportError as error:
        raise MissingExtra("torch", "collect", "comparing a calibration with --drafter") from error
    return hash_files(weight_files(find_checkpoint(source)))
