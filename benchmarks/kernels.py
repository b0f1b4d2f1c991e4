"""One evaluation of the fit's ECE by cluster and bin, kernel by kernel: numpy as the library does it, others beside it.

    python benchmarks/kernels.py [--rows N] [--repeats N]

An evaluation is p = a·σ(z/T) clamped, ⌊p·B⌋, and Σ(p - y) by cluster and bin, over the same blocks of rows for every
kernel, on one and on two threads. All take turns, in a new order each time round; a ratio is the median, over the
rounds, of a kernel's time against the library's on as many threads, so that most of what else runs on the machine
falls out of it. `cores` is processor time over wall time of the best turn: two threads that got less than two cores
waited, for a lock or for other programs. `faults` are its page faults, memory that was given back and asked for anew:
many of them can double a time. `largest error` is that of a cell's sum against the library's; `same` means every bit.
torch and numba are measured where they are installed. A table goes to stderr, one JSON object to stdout.

Other processors can be had in part: NPY_DISABLE_CPU_FEATURES takes instructions away from numpy, NUMBA_CPU_NAME and
ATEN_CPU_CAPABILITY from the others.
"""

import argparse
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fitting.objective import evaluate_by_cluster
from dspark_calib.calibration.rows.row_blocks import PositionBlock, RowBlocks, RowChoice
from dspark_calib.metrics.bins import CLAMP
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.passes import Pass, map_in_order, run_pass
from dspark_calib.trace import Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

Floats = npt.NDArray[np.float64]
Kernel = Callable[[PositionBlock], Floats]

TEMPERATURES = np.array([1.3, 1.4, 1.5, 1.6])
BINS = 20
THREADS = (1, 2)
LIBRARY = "numpy (library)"


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rows-per-prompt", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    rows = ReadyRows.of(max(1, options.rows // options.rows_per_prompt), options.rows_per_prompt)
    contestants = [*(Contestant(LIBRARY, t, lambda t=t: rows.library(t)) for t in THREADS), *others(rows)]
    expected = contestants[0].work()
    for contestant in contestants:  # first calls load, compile and warm up
        contestant.error = float(np.abs(contestant.work() - expected).max())
    order = np.random.default_rng(0)
    for _ in range(options.repeats):
        for i in order.permutation(len(contestants)):
            contestants[i].run_once()
            time.sleep(0.03)  # torch's threads keep a core busy for a while after their work
    results = [summary(c, contestants, len(rows) * len(TEMPERATURES)) for c in contestants]
    missing = [name for name in ("torch", "numba") if find_spec(name) is None]
    show(results, missing)
    result = {
        "rows": len(rows),
        "clusters": rows.clusters,
        "blocks": len(rows.ready),
        "cores": os.cpu_count(),
        "repeats": options.repeats,
        "not_installed": missing,
        "kernels": results,
    }
    print(json.dumps(result, allow_nan=False))


@dataclass(slots=True)
class ReadyRows:
    """Blocks made ahead, with what `evaluate_by_cluster` asks of `FitRows`: only kernels are timed."""

    ready: list[PositionBlock]
    clusters: int
    cluster_sizes: Floats
    threads: int = 1

    @classmethod
    def of(cls, prompts: int, each: int) -> "ReadyRows":
        """Draw rows and take the second position, whose prefix survival is not 1."""
        rng = np.random.default_rng(0)
        rounds = synthetic_rounds(rng, prompts=prompts, rounds_per_prompt=each, temperatures=[1.5, 1.5])
        judged = JudgedTrace(Trace.of(rounds, synthetic_provenance(2)))
        choice = RowChoice(view="cumulative", number=np.arange(prompts), all_rows=False)
        return cls(list(RowBlocks(judged.rows, choice).positions((1.5,))), prompts, np.full(prompts, float(each)))

    def __len__(self) -> int:
        return sum(len(block) for block in self.ready)

    def over_position(self, pass_: Pass[PositionBlock, Any, Floats]) -> Floats:
        """Run a pass over the blocks."""
        return run_pass(pass_, self.ready, self.threads)

    def library(self, threads: int) -> Floats:
        """Evaluate as the library does."""
        self.threads = threads
        return np.stack(evaluate_by_cluster(self, "ece", TEMPERATURES, BINS).sums, axis=1)

    def evaluate(self, kernel: Kernel, threads: int) -> Floats:
        """Evaluate by another kernel, the same way round."""
        sums = np.zeros((self.clusters, len(TEMPERATURES), BINS))
        for block, part in map_in_order(lambda block: (block, kernel(block)), self.ready, threads):
            sums[block.present] += part
        return sums


@dataclass(slots=True)
class Contestant:
    """A kernel on so many threads, and its times."""

    name: str
    threads: int
    work: Callable[[], Floats]
    error: float = 0.0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)

    def run_once(self) -> None:
        """Evaluate once and note the time."""
        faults, wall, cpu = page_faults(), time.perf_counter(), time.process_time()
        self.work()
        self.seconds.append(time.perf_counter() - wall)
        self.cpu_seconds.append(time.process_time() - cpu)
        self.faults.append(page_faults() - faults)


def page_faults() -> int:
    """Return this process's page faults so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def others(rows: ReadyRows) -> Iterator[Contestant]:
    """Yield every other kernel on every number of threads."""
    kernels: dict[str, Kernel] = {
        "numpy, bincount": numpy_kernel(bincount),
        "numpy, add.at": numpy_kernel(add_at),
        "numpy, 16,384 at once": in_slices(numpy_kernel(bincount), 16_384),
        "numpy, float32": numpy_kernel(bincount, np.float32),
    }
    if find_spec("numba") is not None:
        kernels |= {f"numba{', fastmath' * fast}": numba_kernel(fastmath=fast) for fast in (False, True)}
    yield from (Contestant(n, t, lambda k=k, t=t: rows.evaluate(k, t)) for n, k in kernels.items() for t in THREADS)
    if find_spec("torch") is not None:
        for name, its_own in (("torch", False), ("torch, its threads", True)):
            yield from (Contestant(name, t, torch_work(rows, t, its_own=its_own)) for t in THREADS)


Cells = npt.NDArray[np.int32]
Adder = tuple[Cells, Floats, Callable[[], Floats]]  # where to write cells and values, and what then adds them up


def numpy_kernel(adder: Callable[[int, int], Adder], dtype: type[np.floating[Any]] = np.float64) -> Kernel:
    """Return the library's arithmetic with another histogram or another type."""
    top = min(dtype(1.0 - CLAMP), np.nextafter(dtype(1), dtype(0)))  # 1 - 1e-8 is 1 in float32

    def kernel(block: PositionBlock) -> Floats:
        logit, prior, label = (a.astype(dtype, copy=False) for a in (block.logit, block.prior, block.label))
        magnitude, one_above = np.abs(logit), (logit >= 0).astype(dtype)
        base = (block.local * BINS).astype(np.int32)
        cell, excess, add_up = adder(len(block), len(block.present) * BINS)
        e, p = np.empty_like(prior), excess if dtype is np.float64 else np.empty_like(prior)
        out = np.empty((len(block.present), len(TEMPERATURES), BINS))
        for i, temperature in enumerate(TEMPERATURES.astype(dtype)):
            np.divide(magnitude, -temperature, out=e)
            np.exp(e, out=e)
            np.maximum(e, one_above, out=p)
            e += 1
            p /= e
            p *= prior
            np.clip(p, dtype(CLAMP), top, out=p)
            np.multiply(p, BINS, out=e)
            np.copyto(cell, e, casting="unsafe")
            cell += base
            np.subtract(p, label, out=excess)
            out[:, i] = add_up().reshape(-1, BINS)
        return out

    return kernel


def bincount(n: int, size: int) -> Adder:
    """Add up by `bincount`, which checks and converts cells under the interpreter's lock."""
    cell, values = np.empty(n, dtype=np.int32), np.empty(n)
    return cell, values, lambda: np.bincount(cell, weights=values, minlength=size)


def add_at(n: int, size: int) -> Adder:
    """Add up in place, under the lock all the while."""
    cell, values = np.empty(n, dtype=np.int32), np.empty(n)

    def add_up() -> Floats:
        out = np.zeros(size)
        np.add.at(out, cell, values)
        return out

    return cell, values, add_up


def in_slices(kernel: Kernel, length: int) -> Kernel:
    """Return a kernel that works on slices of a block, which fit a nearer cache."""

    def sliced(block: PositionBlock) -> Floats:
        out = np.zeros((len(block.present), len(TEMPERATURES), BINS))
        for start in range(0, len(block), length):
            rows = slice(start, start + length)
            part = PositionBlock(
                logit=block.logit[rows],
                prior=block.prior[rows],
                label=block.label[rows],
                local=block.local[rows],
                present=block.present,
            )
            out += kernel(part)
        return out

    return sliced


def numba_kernel(*, fastmath: bool) -> Kernel:
    """Return a compiled loop over rows that holds no lock."""
    compiled = importlib.import_module("numba").njit(add_rows, nogil=True, fastmath=fastmath)

    def kernel(block: PositionBlock) -> Floats:
        out = np.zeros((len(block.present), len(TEMPERATURES), BINS))
        for i, temperature in enumerate(TEMPERATURES):
            compiled(block.logit, block.prior, block.label, block.local, temperature, out[:, i])
        return out

    return kernel


def add_rows(logit: Any, prior: Any, label: Any, local: Any, temperature: Any, out: Any) -> None:
    """Add every row's p - y to its cell; compiled."""
    for i in range(len(logit)):
        e = np.exp(-abs(logit[i]) / temperature)
        p = (1.0 if logit[i] >= 0 else e) / (1.0 + e) * prior[i]
        p = min(max(p, CLAMP), 1.0 - CLAMP)
        out[local[i], int(p * BINS)] += p - label[i]


def torch_work(rows: ReadyRows, threads: int, *, its_own: bool) -> Callable[[], Floats]:
    """Return an evaluation by torch: on its own threads, or on one each in ours."""
    torch = importlib.import_module("torch")

    def kernel(block: PositionBlock) -> Floats:
        logit, prior, label, base, one_above = (
            torch.from_numpy(a)
            for a in (block.logit, block.prior, block.label, block.local * BINS, (block.logit >= 0).astype(np.float64))
        )
        size, out = len(block.present) * BINS, np.empty((len(block.present), len(TEMPERATURES), BINS))
        for i, temperature in enumerate(TEMPERATURES.tolist()):
            e = logit.abs().div_(-temperature).exp_()
            p = torch.maximum(e, one_above).div_(e.add_(1.0)).mul_(prior).clamp_(CLAMP, 1.0 - CLAMP)
            cell = p.mul(BINS).to(torch.int64).add_(base)
            sums = torch.zeros(size, dtype=torch.float64).index_add_(0, cell, p.sub_(label))
            out[:, i] = sums.numpy().reshape(-1, BINS)
        return out

    def work() -> Floats:
        torch.set_num_threads(threads if its_own else 1)
        return rows.evaluate(kernel, 1 if its_own else threads)

    return work


def summary(contestant: Contestant, contestants: list[Contestant], evaluations: int) -> dict[str, Any]:
    """Return a contestant's figures; ratios are against the library's kernel on as many threads, and on one."""
    library = {c.threads: np.array(c.seconds) for c in contestants if c.name == LIBRARY}
    seconds, best = np.array(contestant.seconds), int(np.argmin(contestant.seconds))
    return {
        "kernel": contestant.name,
        "threads": contestant.threads,
        "best_nanoseconds": float(seconds.min() / evaluations * 1e9),
        "against_library": float(np.median(seconds / library[contestant.threads])),
        "best_against_library": float(seconds.min() / library[contestant.threads].min()),
        "best_against_one_thread": float(seconds.min() / library[1].min()),
        "cores": contestant.cpu_seconds[best] / seconds[best],
        "page_faults": contestant.faults[best],
        "largest_error": contestant.error,
    }


def show(results: list[dict[str, Any]], missing: list[str]) -> None:
    """Print the table."""
    head = ("threads", "ns, best", "ratio", "ratio of best", "cores", "faults", "largest error")
    print(f"{'kernel':<24}" + "".join(f"{name:>15}" for name in head), file=sys.stderr)
    for r in results:
        error = f"{r['largest_error']:.0e}" if r["largest_error"] else "same"
        numbers = (r["best_nanoseconds"], r["against_library"], r["best_against_library"], r["cores"])
        cells = [r["threads"], *(f"{x:.2f}" for x in numbers), r["page_faults"], error]
        print(f"{r['kernel']:<24}" + "".join(f"{cell!s:>15}" for cell in cells), file=sys.stderr)
    for name in missing:
        print(f"{name:<24}{'not installed':>15}", file=sys.stderr)


if __name__ == "__main__":
    main()
