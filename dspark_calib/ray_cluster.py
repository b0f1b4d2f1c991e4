"""A Ray cluster to work on: the one `RAY_ADDRESS` names, else one started here and stopped again."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dspark_calib.errors import MissingExtra, WorkersFailed


@contextmanager
def ray_cluster(on_death: str) -> Iterator[Any]:
    """Yield the `ray` module, connected.

    Args:
        on_death: What a reader should do when an actor dies, a clause.

    Raises:
        MissingExtra: If Ray is not installed.
        WorkersFailed: If there is no cluster at the address, or an actor dies.
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
            raise WorkersFailed(f"no Ray cluster to work on: {reason}; check RAY_ADDRESS") from error
    try:
        yield ray
    except ray.exceptions.RayTaskError:
        raise  # a bug keeps its traceback
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        raise WorkersFailed(f"a Ray actor died ({reason}); {on_death}") from error
    finally:
        if started_here:
            ray.shutdown()
