"""Time and memory of `fit-sts` on a large trace, against a plain numpy greedy fitter in the same run.

    python benchmarks/fit_speed.py TRACE [--check] [--fit-only]

Measures reading, the fit (the bare minimum without intervals, which is what the plain fitter does too, and the default
with them), the whole command, and the plain fitter: 256 temperatures over the first 10⁶ rows, its time scaled to all.
`--check` also compares the temperatures with exhaustive search over the default grid. The peak of memory is that of
the process up to the end of a step, and never falls: only a step that raises it has needed that much. The table goes
to stderr, step by step, one JSON object to stdout; trust the ratios rather than the seconds.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fit_calibration import fit_calibration
from dspark_calib.calibration.fitting.search import search
from dspark_calib.calibration.fitting.sts import fit_sts
from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.trace import Trace, open_trace

PLAIN_ROWS, PLAIN_TEMPERATURES = 1_000_000, 256
BARE, DEFAULT = "fit, bare minimum", "fit, default"
PLAIN = "plain fitter"
SCALED = "plain fitter, scaled"
T = TypeVar("T")


def main() -> None:
    """Measure one trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with exhaustive search")
    parser.add_argument("--fit-only", action="store_true", help="leave out the whole command and the plain fitter")
    options = parser.parse_args()
    trace, steps = open_trace(options.trace), Steps()
    result: dict[str, Any] = {"rounds": trace.num_rounds, "gamma": trace.gamma, "prompts": trace.provenance.prompts}
    result |= measure_fit(trace, steps, check=options.check)
    if not options.fit_only:
        steps.timed("whole command", lambda: fit_calibration(trace, accept=("all",)))
        result |= measure_plain(trace, steps)
    result |= {"cores": os.cpu_count(), "steps": [asdict(step) for step in steps.done]}
    print(json.dumps(result, allow_nan=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a step took.

    Attributes:
        name: The step.
        seconds: Wall time.
        cpu_seconds: Processor time of all threads.
        peak_gigabytes: The most memory the process has held until its end, earlier steps included.
    """

    name: str
    seconds: float
    cpu_seconds: float
    peak_gigabytes: float


class Steps:
    """Steps done so far; each is a row of the table as soon as it is done."""

    def __init__(self) -> None:
        self.done: list[Step] = []
        self._show("step", "seconds", "CPU seconds", "peak GB so far")

    def timed(self, name: str, work: Callable[[], T]) -> T:
        """Do the work of a step and note what it took."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        self.add(name, time.perf_counter() - wall, time.process_time() - cpu)
        return result

    def add(self, name: str, seconds: float, cpu_seconds: float) -> None:
        """Note a step."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        self.done.append(Step(name=name, seconds=seconds, cpu_seconds=cpu_seconds, peak_gigabytes=peak))
        self._show(name, f"{seconds:.1f}", f"{cpu_seconds:.1f}", f"{peak:.2f}")

    def find(self, name: str) -> Step:
        """Return the step of that name."""
        return next(step for step in self.done if step.name == name)

    @staticmethod
    def _show(name: str, *cells: str) -> None:
        print(f"{name:<24}" + "".join(f"{cell:>16}" for cell in cells), file=sys.stderr, flush=True)


def measure_fit(trace: Trace, steps: Steps, *, check: bool) -> dict[str, Any]:
    """Time reading and fitting; return the temperatures, and whether exhaustive search finds the same."""
    judged = steps.timed("read", lambda: JudgedTrace(trace))
    rows = steps.timed("blocks", lambda: FitRows(judged, "cumulative"))
    paper = steps.timed(BARE, lambda: fit_sts(rows, select="paper", details=False))
    fit = steps.timed(DEFAULT, lambda: fit_sts(rows))
    same = None
    if check:
        minima = steps.timed("exhaustive search", lambda: exhaustive_minima(rows, paper.temperatures))
        same = minima == [position.best_temperature for position in paper.positions]
        print(f"same as exhaustive search: {same}", file=sys.stderr)
    return {"temperatures": list(fit.temperatures), "same_as_exhaustive": same}


def exhaustive_minima(rows: FitRows, fixed: tuple[float, ...]) -> list[float]:
    """Return the minimum of exhaustive search at each position, earlier positions as in the fit."""
    rows.restart()
    minima = []
    for temperature in fixed:
        minima.append(search(rows, "ece", "paper", 20, exhaustive=True).best)
        rows.fix(temperature)
    return minima


def measure_plain(trace: Trace, steps: Steps) -> dict[str, Any]:
    """Time the plain fitter on the first rows and scale it to all; return how many times the fit's time that is."""
    z, accepted = first_rows(trace)
    steps.timed(PLAIN, lambda: plain_fit(z, accepted))
    plain, factor = steps.find(PLAIN), trace.num_rounds / len(z)
    steps.add(SCALED, plain.seconds * factor, plain.cpu_seconds * factor)
    ratios = {name: steps.find(SCALED).seconds / steps.find(name).seconds for name in (BARE, DEFAULT)}
    for name, ratio in ratios.items():
        print(f"the plain fitter takes {ratio:.1f} × the {name}", file=sys.stderr)
    return {"plain_rows": len(z), "plain_over_bare_fit": ratios[BARE], "plain_over_default_fit": ratios[DEFAULT]}


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


if __name__ == "__main__":
    main()
