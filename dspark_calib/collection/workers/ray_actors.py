"""Workers as Ray actors: as many as the cluster has devices for."""

from collections.abc import Sequence
from typing import Any

from dspark_calib.collection.batches import Batch
from dspark_calib.collection.job import CollectionJob
from dspark_calib.collection.worker import BatchCollector
from dspark_calib.collection.workers.reports import Listener, ModelsReady
from dspark_calib.errors import DsparkCalibError
from dspark_calib.ray_cluster import ray_cluster


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
        WorkersFailed: If an actor dies.
        DsparkCalibError: What an actor raised.
    """
    with ray_cluster("finished parts are kept, go on with --resume") as ray:
        _collect(ray, job, batches, listener)


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
