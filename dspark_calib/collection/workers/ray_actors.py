"""Workers as Ray actors: as many as the cluster has devices for."""

import logging
import os
from collections.abc import Sequence
from typing import Any

from dspark_calib.collection.batches import Batch
from dspark_calib.collection.job import CollectionJob
from dspark_calib.collection.worker import BatchCollector
from dspark_calib.collection.workers.reports import Listener, ModelsReady
from dspark_calib.errors import CollectionError, DsparkCalibError, MissingExtra


class _RayCollector:
    """What runs inside an actor; its errors come back as values, because Ray wraps those that are raised."""

    def __init__(self, job: CollectionJob) -> None:
        self._job = job

    def load(self) -> Any:
        """Load the models."""
        try:
            self._collector = BatchCollector(self._job)
        except DsparkCalibError as error:
            return error
        return ModelsReady(gamma=self._collector.gamma, drafter=self._collector.drafter_identity)

    def collect(self, batch: Batch) -> Any:
        """Turn a batch into rounds."""
        try:
            return self._collector.collect(batch)
        except DsparkCalibError as error:
            return error


def run_on_ray(job: CollectionJob, batches: Sequence[Batch], listener: Listener) -> None:
    """Collect all batches on the Ray cluster (`RAY_ADDRESS`, else one started here for this run).

    An actor takes one GPU where the cluster has any and the job is not for the CPU, else one CPU.

    Raises:
        MissingExtra: If Ray is not installed.
        CollectionError: If an actor dies.
        DsparkCalibError: What an actor raised.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "--workers ray") from error
    started_here = not ray.is_initialized()
    if started_here:
        # The dashboard belongs to whoever started the cluster.
        own: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {"include_dashboard": False}
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise CollectionError(f"no Ray cluster to work on: {reason}; check RAY_ADDRESS") from error
    try:
        _collect(ray, job, batches, listener)
    except ray.exceptions.RayTaskError:
        raise  # a bug keeps its traceback
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise CollectionError(f"a Ray actor died ({reason}); finished parts are kept, go on with --resume") from error
    finally:
        if started_here:
            ray.shutdown()


def _collect(ray: Any, job: CollectionJob, batches: Sequence[Batch], listener: Listener) -> None:
    resource, count = _actors(ray.cluster_resources(), job.device)
    remote = ray.remote(_RayCollector).options(**resource)
    idle = [remote.remote(job) for _ in range(min(count, len(batches)))]
    pending = {actor.load.remote(): actor for actor in idle}
    waiting = list(reversed(batches))
    while pending:
        ready, _ = ray.wait(list(pending), num_returns=1)
        actor = pending.pop(ready[0])
        report = ray.get(ready[0])
        if isinstance(report, DsparkCalibError):
            raise report
        listener(report)
        if waiting:
            pending[actor.collect.remote(waiting.pop())] = actor


def _actors(resources: dict[str, float], device: str) -> tuple[dict[str, int], int]:
    """Return what an actor asks for and how many there can be."""
    gpus = int(resources.get("GPU", 0))
    if gpus and device != "cpu":
        return {"num_gpus": 1, "num_cpus": 1}, gpus
    return {"num_cpus": 1}, max(1, int(resources.get("CPU", 1)))
