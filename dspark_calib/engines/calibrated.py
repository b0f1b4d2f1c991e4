"""From a calibration to what an engine is given."""

from dspark_calib.calibration import Calibration
from dspark_calib.engines.table import TemperatureTable


def table_of(calibration: Calibration) -> TemperatureTable:
    """Return the part of a calibration that engines read."""
    return TemperatureTable(
        temperatures=calibration.temperatures,
        dataset=calibration.dataset,
        num_samples=calibration.num_samples,
        ece_before=calibration.ece_before,
        ece_after=calibration.ece_after,
    )
