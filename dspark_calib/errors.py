"""Errors a person can act on.

Every message says what is wrong, where (file, row, field) and what to do. The command line turns
any `DsparkCalibError` into one line on stderr and exit code 2; bugs keep their traceback.
"""


class DsparkCalibError(Exception):
    """Base of every error caused by input rather than by a bug."""


class TraceFormatError(DsparkCalibError):
    """A trace, or a foreign record to import, that does not follow its format."""


class IncompatibleTraces(DsparkCalibError):  # noqa: N818 - reads as the state of affairs
    """Traces that must not be mixed: another γ, checkpoint, label law or temperature."""


class InsufficientData(DsparkCalibError):  # noqa: N818
    """Too few rounds or prompts for what was asked."""


class FindingsNotAccepted(DsparkCalibError):  # noqa: N818
    """A trace with findings that stop a fit until they are accepted by name."""


class CalibrationFileError(DsparkCalibError):
    """A calibration file that is malformed or belongs to another checkpoint."""


class CheckpointError(DsparkCalibError):
    """A model folder that is missing, truncated or does not fit its partner."""


class UnsupportedModel(DsparkCalibError):  # noqa: N818
    """A checkpoint of a kind this version cannot run."""


class PromptFileError(DsparkCalibError):
    """A prompt file with a broken line."""


class ResponseError(DsparkCalibError):
    """Responses that are missing, foreign to the target, or could not be had from a server."""


class CollectionError(DsparkCalibError):
    """A collection that could not go on: a full disk, a device without memory."""


class WorkersFailed(DsparkCalibError):  # noqa: N818
    """Workers that died, or could not be reached."""


class ExportError(DsparkCalibError):
    """A setting that an engine would not load."""


class CurveError(DsparkCalibError):
    """A speed curve that is malformed or does not cover what was asked."""


class PolicyError(DsparkCalibError):
    """A verification policy that is not known, or that a trace cannot replay."""


class ConfigError(DsparkCalibError):
    """A `dspark-calib.toml` with an unknown table, key or value."""


class OutputExists(DsparkCalibError):  # noqa: N818
    """An output that stands already and may not be overwritten."""


class MissingExtra(DsparkCalibError):  # noqa: N818
    """A package that an optional part of the toolkit needs."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}: pip install 'dspark-calib[{extra}]'")
