"""What workers report, wherever they run."""

from collections.abc import Callable
from dataclasses import dataclass

from dspark_calib.collection.worker import BatchResult
from dspark_calib.trace.provenance import Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsReady:
    """A worker has loaded its models.

    Attributes:
        gamma: Drafts in a block.
        drafter: Name and content hash.
    """

    gamma: int
    drafter: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShare:
    """How far a batch is.

    Attributes:
        index: Number of the batch.
        share: 0 … 1.
    """

    index: int
    share: float


Report = ModelsReady | BatchShare | BatchResult
Listener = Callable[[Report], None]
