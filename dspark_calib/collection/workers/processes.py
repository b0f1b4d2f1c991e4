"""Several workers, each a process of its own with a device of its own."""

import contextlib
import multiprocessing
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from dspark_calib.collection.batches import Batch
from dspark_calib.collection.job import CollectionJob
from dspark_calib.collection.worker import BatchCollector, BatchResult
from dspark_calib.collection.workers.reports import BatchShare, Listener, ModelsReady, Report
from dspark_calib.errors import DsparkCalibError, WorkersFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crash:
    """A bug in a worker, by its traceback."""

    text: str


@dataclass(slots=True, kw_only=True)
class _Worker:
    number: int
    process: BaseProcess
    connection: Connection
    batch: Batch | None = field(default=None)


def run_in_processes(job: CollectionJob, batches: Sequence[Batch], workers: int, listener: Listener) -> None:
    """Collect all batches, each by whichever worker is free.

    Args:
        job: What to collect.
        batches: In any order.
        workers: Processes; each takes the next CUDA device, or all share the CPU.
        listener: Told what comes back, in this process.

    Raises:
        DsparkCalibError: What a worker raised.
        WorkersFailed: If a worker dies.
    """
    devices = worker_devices(job.device, workers)
    crew = [_start(job, number, device) for number, device in enumerate(devices, start=1)]
    waiting = list(reversed(batches))
    try:
        while waiting or any(worker.batch for worker in crew):
            _hear(crew, waiting, listener)
    finally:
        _dismiss(crew)


def worker_devices(device: str, workers: int) -> list[str]:
    """Return one device a worker: CUDA devices in turn where CUDA is meant, else the same for all."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus and device in ("auto", "cuda"):
        return [f"cuda:{number % gpus}" for number in range(workers)]
    return ["cpu" if device == "auto" else device] * workers


def _start(job: CollectionJob, number: int, device: str) -> _Worker:
    # A fresh interpreter: a forked one would inherit threads of torch and a CUDA context it cannot use.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(job, device, theirs), name=f"worker-{number}", daemon=True)
    process.start()
    theirs.close()
    return _Worker(number=number, process=process, connection=ours)


def _hear(crew: list[_Worker], waiting: list[Batch], listener: Listener) -> None:
    """Wait for word from any worker and act on it."""
    worker_at = {worker.connection: worker for worker in crew}
    for connection in wait(list(worker_at)):
        worker = worker_at[connection]  # type: ignore[index]  # wait() returns what it was given
        try:
            report = worker.connection.recv()
        except (EOFError, OSError) as error:
            raise WorkersFailed(_obituary(worker)) from error
        if isinstance(report, DsparkCalibError):
            raise report
        if isinstance(report, _Crash):
            raise RuntimeError(  # noqa: TRY004 - a bug elsewhere, not a wrong type here
                f"worker {worker.number} failed:\n{report.text}"
            )
        if not isinstance(report, BatchShare):
            _assign(worker, waiting)
        listener(report)


def _assign(worker: _Worker, waiting: list[Batch]) -> None:
    worker.batch = waiting.pop() if waiting else None
    if worker.batch is not None:
        worker.connection.send(worker.batch)


def _obituary(worker: _Worker) -> str:
    worker.process.join(timeout=5)
    code = worker.process.exitcode
    how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with code {code}"
    doing = "loading its models" if worker.batch is None else f"at batch {worker.batch.index}"
    hint = "; the system kills processes that want too much memory, so try fewer --workers" if code == -9 else ""
    return f"worker {worker.number} {how} {doing}{hint}; finished parts are kept, go on with --resume"


def _dismiss(crew: list[_Worker]) -> None:
    for worker in crew:
        worker.connection.close()
        worker.process.terminate()
    for worker in crew:
        worker.process.join()


def _serve(job: CollectionJob, device: str, connection: Connection) -> None:
    """Load the models and collect what comes, until nobody is there any more."""
    # Ctrl-C reaches every process of the terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            _work(job, device, connection)
        except DsparkCalibError as error:
            connection.send(error)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the parent shows it
            connection.send(_Crash(text=traceback.format_exc()))


def _work(job: CollectionJob, device: str, connection: Connection) -> None:
    collector = BatchCollector(job, device)
    connection.send(ModelsReady(gamma=collector.gamma, drafter=collector.drafter_identity))
    while True:
        batch: Batch = connection.recv()
        result: BatchResult = collector.collect(batch, partial(_tick, connection, batch.index))
        _send(connection, result)


def _tick(connection: Connection, index: int, share: float) -> None:
    _send(connection, BatchShare(index=index, share=share))


def _send(connection: Connection, report: Report | Any) -> None:
    connection.send(report)
