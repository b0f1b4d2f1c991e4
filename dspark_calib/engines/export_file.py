"""The whole of `export`: read a calibration, check the drafter, write the setting, read it back."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dspark_calib.calibration import Calibration, read_calibration
from dspark_calib.calibration.decision import KEEP_IDENTITY
from dspark_calib.engines.calibrated import table_of
from dspark_calib.engines.export import check_checkpoint, check_setting, find_engine, render_export
from dspark_calib.errors import ConfigError, ExportError, OutputExists


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedFile:
    """What was exported, and where to.

    Attributes:
        engine: Its name.
        temperatures: As the engine will use them.
        text: The setting.
        usage: How the engine is given it.
        path: The file, or None where the text is for stdout.
        written: Whether the file was written now; False where an existing one was only checked.
        warnings: What the reader should know before serving with it.
    """

    engine: str
    temperatures: tuple[float, ...]
    text: str
    usage: str
    path: Path | None
    written: bool
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the export as JSON values."""
        return {
            "engine": self.engine,
            "temperatures": list(self.temperatures),
            "text": self.text,
            "usage": self.usage,
            "path": None if self.path is None else str(self.path),
            "written": self.written,
            "warnings": list(self.warnings),
        }


def export_calibration(
    calibration: Path,
    engine: str,
    *,
    drafter_hash: str | None = None,
    out: Path | None = None,
    check: bool = False,
    allow_other_checkpoint: bool = False,
    overwrite: bool = False,
) -> ExportedFile:
    """Write one engine's setting.

    Args:
        calibration: The calibration file.
        engine: Name of the engine.
        drafter_hash: Content hash of the drafter to be served; None leaves it uncompared.
        out: File to write; None leaves the text to the caller.
        check: Read `out` back by the engine's rule; one that exists is checked and not rewritten.
        allow_other_checkpoint: Export although the drafter is another one.
        overwrite: Replace an existing file.

    Raises:
        CalibrationFileError: If the calibration is malformed or belongs to another checkpoint.
        ExportError: If the engine would not load the setting, or reads none.
        OutputExists: If the file stands already.
    """
    find_engine(engine)  # an engine that reads nothing is said before anything else is
    fitted = read_calibration(calibration)
    table = table_of(fitted)
    other = check_checkpoint(fitted.drafter.content_hash, drafter_hash, allow_other=allow_other_checkpoint)
    export = render_export(table, engine)
    if check and out is None:
        raise ConfigError("--check reads a file back; give it with --out")
    written = out is not None and not (check and out.exists() and not overwrite)
    if out is not None and written:
        _write(out, export.text, overwrite=overwrite)
    if out is not None and check:
        check_setting(_read(out), table, engine)
    return ExportedFile(
        engine=engine,
        temperatures=table.temperatures,
        text=export.text,
        usage=export.usage.replace("{file}", str(out) if out is not None else find_engine(engine).file_name),
        path=out,
        written=written,
        warnings=tuple(said for said in (*export.warnings, other, _advice(fitted)) if said is not None),
    )


def _advice(fitted: Calibration) -> str | None:
    """Return what speaks against serving with temperatures that the fit itself advises not to use."""
    if fitted.decision != KEEP_IDENTITY or fitted.is_identity:
        return None
    return f"the fit advises to keep T = 1 ({fitted.reason}); these temperatures are exported all the same"


def _write(path: Path, text: str, *, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise OutputExists(f"{path} exists already; name another output, pass --overwrite, or --check to check it")
    staging = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging.write_text(text, encoding="utf-8")
        staging.replace(path)
    except OSError as error:
        raise ExportError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        staging.unlink(missing_ok=True)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{path}: cannot be read back ({error})") from error
