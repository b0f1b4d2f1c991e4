"""The blocks of a fit's rows on the shards of a trace."""

from dataclasses import dataclass
from typing import Any, TypeVar

from dspark_calib.calibration.rows.row_blocks import PositionBlock, RowBlock, RowBlocks, RowChoice
from dspark_calib.metrics.rows.judged_rows import JudgedRows
from dspark_calib.metrics.rows.passes import Pass
from dspark_calib.metrics.rows.shards import Memory, Shards, merged

Part = TypeVar("Part")
Total = TypeVar("Total")


class FarBlocks:
    """As `RowBlocks`, of rows that lie on shards.

    Args:
        shards: Where the rows are.
        choice: Which of them.

    Attributes:
        kept: Whether the blocks are in memory here: never.
    """

    kept = False

    def __init__(self, shards: Shards, choice: RowChoice) -> None:
        self._shards, self._choice = shards, choice

    def over_rounds(self, pass_: Pass[RowBlock, Part, Total]) -> Total:
        """Run a pass over all rows with all positions."""
        total: Total = merged(pass_, self._shards.map(RoundsTask(self._choice, pass_)))
        return total

    def over_position(self, fixed: tuple[float, ...], pass_: Pass[PositionBlock, Part, Total]) -> Total:
        """Run a pass over the rows that carry a label at the position after those whose temperatures are fixed."""
        total: Total = merged(pass_, self._shards.map(PositionTask(self._choice, fixed, pass_)))
        return total


@dataclass(frozen=True, slots=True)
class RoundsTask:
    """Runs a pass over the rows of a share."""

    choice: RowChoice
    pass_: Pass[RowBlock, Any, Any]

    def __call__(self, rows: JudgedRows, memory: Memory) -> Any:
        """Run it."""
        return _blocks(rows, self.choice, memory).over_rounds(self.pass_)


@dataclass(frozen=True, slots=True)
class PositionTask:
    """Runs a pass over the rows of a share at one position."""

    choice: RowChoice
    fixed: tuple[float, ...]
    pass_: Pass[PositionBlock, Any, Any]

    def __call__(self, rows: JudgedRows, memory: Memory) -> Any:
        """Run it."""
        return _blocks(rows, self.choice, memory).over_position(self.fixed, self.pass_)


def _blocks(rows: JudgedRows, choice: RowChoice, memory: Memory) -> RowBlocks:
    """Return the blocks, with the prefix survival they kept; those of the choice before are let go."""
    key = (choice.view, choice.all_rows, choice.number.tobytes())
    if key not in memory:
        memory.clear()
        memory[key] = RowBlocks(rows, choice)
    blocks: RowBlocks = memory[key]
    return blocks
