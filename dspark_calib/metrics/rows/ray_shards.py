"""Shares of a trace on Ray actors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from dspark_calib.errors import DsparkCalibError
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.judged_rows import JudgedRows
from dspark_calib.metrics.rows.shards import Memory, Task
from dspark_calib.ray_cluster import ray_cluster

Total = TypeVar("Total")


@contextmanager
def shards_on_ray(judged: JudgedTrace) -> Iterator[JudgedTrace]:
    """Yield the trace with its files shared out to Ray actors, which must see them under the same paths; a CPU each.

    Raises:
        MissingExtra: If Ray is not installed.
        WorkersFailed: If there is no cluster, or an actor dies.
        DsparkCalibError: What an actor raised.
    """
    with ray_cluster("start again; nothing was written") as ray:
        actor = ray.remote(num_cpus=1)(_Share)
        shares = judged.shares(max(int(ray.cluster_resources().get("CPU", 1)), 1))
        yield judged.on(_RayShards(ray, [actor.remote(share) for share in shares]))


@dataclass(frozen=True, slots=True)
class _RayShards:
    ray: Any
    actors: Sequence[Any]

    def map(self, task: Task[Total]) -> Sequence[Total]:
        at_hand = self.ray.put(task)
        results = self.ray.get([actor.run.remote(at_hand) for actor in self.actors])
        for result in results:
            if isinstance(result, DsparkCalibError):
                raise result
        return list(results)


class _Share:
    """What runs inside an actor; its errors come back as values, because Ray wraps those that are raised."""

    def __init__(self, rows: JudgedRows) -> None:
        self._rows, self._memory = rows, Memory()

    def run(self, task: Task[Any]) -> Any:
        """Return the result of a task."""
        try:
            self._rows = self._rows.at_hand()
            return task(self._rows, self._memory)
        except DsparkCalibError as error:
            return error
