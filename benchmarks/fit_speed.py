"""Time and memory of `fit-sts` on a large trace, against a plain numpy greedy fitter in the same run.

Prints seconds for reading, for the fit (default selection, and the bare minimum), for the whole command with every
interval, peak memory, and the plain fitter's time with 256 temperatures on the first 10⁶ rows, scaled.
--check also compares the temperatures with exhaustive search over the default grid.

Example: python benchmarks/fit_speed.py TRACE --check
"""

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fit_calibration import fit_calibration
from dspark_calib.calibration.rows import FitRows
from dspark_calib.calibration.search import search
from dspark_calib.calibration.sts import fit_sts
from dspark_calib.metrics.judged import JudgedTrace
from dspark_calib.trace import Trace, open_trace

PLAIN_ROWS, PLAIN_TEMPERATURES = 1_000_000, 256
T = TypeVar("T")


def timed(name: str, work: Callable[[], T]) -> tuple[T, float]:
    """Run and print the seconds taken, wall and processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{name}: {wall:.1f} s wall, {cpu:.1f} s processor, peak {peak_gigabytes():.2f} GB", flush=True)
    return result, wall


def peak_gigabytes() -> float:
    """Return the peak resident memory of this process in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def plain_fit(z: npt.NDArray[np.float64], accepted: npt.NDArray[np.int16]) -> list[float]:
    """Fit as one would write it in numpy: every temperature over every row."""
    temperatures = np.logspace(np.log10(0.05), np.log10(20.0), PLAIN_TEMPERATURES)
    prior, found = np.ones(len(z)), []
    for k in range(z.shape[1]):
        y = (accepted > k).astype(np.float64)
        eces = []
        for t in temperatures:
            p = np.clip(prior / (1 + np.exp(-z[:, k] / t)), 1e-8, 1 - 1e-8)
            bins = np.minimum((p * 20).astype(np.int64), 19)
            eces.append(np.abs(np.bincount(bins, weights=p - y, minlength=20)).sum() / len(z))
        found.append(float(temperatures[int(np.argmin(eces))]))
        prior /= 1 + np.exp(-z[:, k] / found[-1])
    return found


def first_rows(trace: Trace) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int16]]:
    """Return the first 10⁶ rows."""
    logits, accepted, seen = [], [], 0
    for rounds in trace.batches(optional=()):
        logits.append(rounds.confidence_logits.astype(np.float64))
        accepted.append(rounds.accepted)
        seen += len(rounds)
        if seen >= PLAIN_ROWS:
            break
    return np.concatenate(logits)[:PLAIN_ROWS], np.concatenate(accepted)[:PLAIN_ROWS]


def exhaustive_minima(rows: FitRows, fixed: tuple[float, ...]) -> list[float]:
    """Return the minimum of exhaustive search at each position, earlier positions as in the fit."""
    rows.restart()
    minima = []
    for temperature in fixed:
        minima.append(search(rows, "ece", "paper", 20, exhaustive=True).best)
        rows.fix(temperature)
    return minima


def main() -> None:
    """Measure one trace."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with exhaustive search")
    parser.add_argument("--fit-only", action="store_true", help="leave out the whole command and the plain fitter")
    args = parser.parse_args()
    trace = open_trace(args.trace)
    judged, _ = timed("read", lambda: JudgedTrace(trace))
    rows, _ = timed("blocks", lambda: FitRows(judged, "cumulative"))
    paper, _ = timed("fit, bare minimum", lambda: fit_sts(rows, select="paper"))
    fit, seconds = timed("fit, parsimonious", lambda: fit_sts(rows))
    print("temperatures:", [round(t, 4) for t in fit.temperatures], flush=True)
    if args.check:
        minima, _ = timed("exhaustive search", lambda: exhaustive_minima(rows, paper.temperatures))
        print("same as exhaustive:", minima == [p.best_temperature for p in paper.positions], flush=True)
    if not args.fit_only:
        del rows, judged
        timed("whole command", lambda: fit_calibration(trace, accept=("all",)))
        z, accepted = first_rows(trace)
        _, plain = timed("plain numpy fitter, first rows", lambda: plain_fit(z, accepted))
        scaled = plain * trace.num_rounds / len(z)
        print(f"plain fitter scaled to all rows: {scaled:.0f} s, {scaled / seconds:.1f} × the fit", flush=True)


if __name__ == "__main__":
    main()
