"""Draw the figures of "Statistics for engineers" from the demo: `make demo`, then `make screenshots`.

They are the report's own figures, as SVG: `report --figures` draws all of them, and those named here are kept.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dspark_calib.summary.inputs import read_report
from dspark_calib_reports.figure_files import write_figures

ROOT = Path(__file__).resolve().parents[1]
PICTURES = Path(__file__).parent / "images" / "statistics"
KEPT = ("reliability-1", "ece", "bias", "miscalibration", "auroc", "proxies", "acceptance", "sweep-0", "temperature-1")


def main(demo: Path) -> None:
    """Draw the demo's figures and keep the named ones."""
    report = read_report([demo / "trace"], calibration=demo / "calibration.json")
    PICTURES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        written = write_figures(report, Path(scratch))
        if written.no_images:
            sys.exit(written.no_images)
        for drawn in (Path(scratch) / f"{name}.svg" for name in KEPT):
            if drawn.is_file():
                shutil.copy(drawn, PICTURES)
            print(f"{drawn.name}: {'drawn' if drawn.is_file() else 'not in this report; the old one stays'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "examples" / "demo")
