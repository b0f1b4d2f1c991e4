"""What each inference engine reads: one writer per engine, with its own parse rule for the check.

`table` is what is written, `json_files` and `deepinfer` the formats, `environment` the forms of an
environment, `export` the way from a table to a checked setting.
"""

from dspark_calib.engines.export import ENGINES, Export, check_checkpoint, check_setting, find_engine, render_export
from dspark_calib.engines.table import Engine, TemperatureTable

__all__ = [
    "ENGINES",
    "Engine",
    "Export",
    "TemperatureTable",
    "check_checkpoint",
    "check_setting",
    "find_engine",
    "render_export",
]
