"""Draw the figures of "Statistics for engineers": `make demo`, then `make screenshots`.

They are the report's own figures, as SVG: `report --figures` draws all of them, and those named here are kept.
Most show the demo. The demo's temperatures stay at 1 and its traffic does not move, so the curve of a fit and a
comparison of two traces show synthetic rounds instead: true T = 1.5, then the same head on harder prompts.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dspark_calib.calibration import fit_calibration, write_calibration
from dspark_calib.summary.inputs import read_report
from dspark_calib.summary.record import Report
from dspark_calib.trace import Trace, write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds
from dspark_calib_reports.figure_files import write_figures

ROOT = Path(__file__).resolve().parents[1]
PICTURES = Path(__file__).parent / "images" / "statistics"
OF_THE_DEMO = ("reliability-1", "ece", "bias", "miscalibration", "auroc", "proxies", "acceptance", "sweep-0")
OF_SYNTHETIC_ROUNDS = ("temperature-1", "comparison")
TEMPERATURES = (1.5, 1.5, 1.5)


def main(demo: Path) -> None:
    """Draw both reports and keep the named figures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    keep_figures(read_report([demo / "trace"], calibration=demo / "calibration.json"), OF_THE_DEMO)
    with TemporaryDirectory() as scratch:
        keep_figures(synthetic_report(Path(scratch)), OF_SYNTHETIC_ROUNDS)


def keep_figures(report: Report, names: tuple[str, ...]) -> None:
    """Draw a report's figures and copy those named."""
    with TemporaryDirectory() as scratch:
        written = write_figures(report, Path(scratch))
        if written.no_images:
            sys.exit(written.no_images)
        for name in names:
            shutil.copy(Path(scratch) / f"{name}.svg", PICTURES)


def synthetic_report(folder: Path) -> Report:
    """Fit on one synthetic trace, then report another of harder prompts against it."""
    fitted = write_synthetic(folder / "fitted", seed=1, logit_mean=1.7)
    write_synthetic(folder / "harder", seed=2, logit_mean=1.0)
    write_calibration(folder / "calibration.json", fit_calibration(fitted))
    return read_report([folder / "harder"], calibration=folder / "calibration.json", old=folder / "fitted")


def write_synthetic(folder: Path, *, seed: int, logit_mean: float) -> Trace:
    """Write 200 prompts of 50 rounds whose true temperatures are known."""
    rounds = synthetic_rounds(
        np.random.default_rng(seed),
        prompts=200,
        rounds_per_prompt=50,
        temperatures=TEMPERATURES,
        logit_mean=logit_mean,
        prompt_effect_sd=0.2,
    )
    return write_trace(folder, synthetic_provenance(len(TEMPERATURES)), [rounds])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "examples" / "demo")
