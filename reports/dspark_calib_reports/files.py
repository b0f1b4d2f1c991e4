"""A report's files in its folder: each written under a temporary name, then renamed."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from dspark_calib.errors import OutputExists
from dspark_calib.summary.json_form import render_json
from dspark_calib.summary.record import Report
from dspark_calib_reports.figure_files import write_figures
from dspark_calib_reports.markdown import render_markdown
from dspark_calib_reports.page.render import render_page

FIGURES = "figures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """Which files are wanted."""

    html: bool = True
    json: bool = False
    markdown: bool = False
    figures: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the wanted files in the report's folder."""
        wanted = {"report.html": self.html, "report.json": self.json, "report.md": self.markdown, FIGURES: self.figures}
        return tuple(name for name, yes in wanted.items() if yes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReport:
    """What was written, and why there are no static images where they were wanted and are not there."""

    files: tuple[Path, ...]
    no_images: str | None


def check_free(folder: Path, formats: Formats, *, overwrite: bool) -> None:
    """Refuse before any work what could not be written after it.

    Raises:
        OutputExists: If a wanted file stands already and `overwrite` is not set, or the folder is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputExists(f"{folder} is a file; name another folder with --out")
    standing = [str(folder / name) for name in formats.names if (folder / name).exists()]
    if standing and not overwrite:
        raise OutputExists(f"{', '.join(standing)} exists already; name another folder with --out or pass --overwrite")


def write_report(report: Report, folder: Path, formats: Formats) -> WrittenReport:
    """Write the wanted files; what stands under their names is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    renders = {"report.html": render_page, "report.json": render_json, "report.md": render_markdown}
    files = [_write(folder / name, renders[name](report)) for name in formats.names if name in renders]
    if not formats.figures:
        return WrittenReport(files=tuple(files), no_images=None)
    no_images = _write_figures(report, folder / FIGURES)
    return WrittenReport(files=(*files, folder / FIGURES), no_images=no_images)


def _write(path: Path, text: str) -> Path:
    staging = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        staging.write_text(text, encoding="utf-8")
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)
    return path


def _write_figures(report: Report, folder: Path) -> str | None:
    staging = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    staging.mkdir()
    try:
        written = write_figures(report, staging)
        if folder.exists():
            shutil.rmtree(folder)
        staging.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return written.no_images
