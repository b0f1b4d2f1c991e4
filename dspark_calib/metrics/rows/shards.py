"""Rows of a trace shared out by file: a pass runs over each share where its rows are, and the totals are merged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dspark_calib.metrics.rows.judged_rows import JudgedBatch, JudgedRows
from dspark_calib.metrics.rows.passes import Pass, run_pass

Total = TypeVar("Total")
Memory = dict[object, Any]
Task = Callable[[JudgedRows, Memory], Total]
"""What is done with a share of the rows. What it leaves in the memory is there for the tasks that follow."""


class Shards(Protocol):
    """Shares of the rows, in row order."""

    def map(self, task: Task[Total]) -> Sequence[Total]:
        """Return the result of a task for each share, in row order."""


def merged(pass_: Pass[Any, Any, Total], totals: Sequence[Total]) -> Total:
    """Return the total of all shares from theirs."""
    whole = pass_.zero()
    for total in totals:
        pass_.merge(whole, total)
    return whole


@dataclass(frozen=True, slots=True)
class BatchTask:
    """Runs a pass over the batches of a share."""

    pass_: Pass[JudgedBatch, Any, Any]

    def __call__(self, rows: JudgedRows, memory: Memory) -> Any:  # noqa: ARG002
        """Run it."""
        return run_pass(self.pass_, rows.batches(), rows.threads)
