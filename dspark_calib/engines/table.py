"""The temperature table an engine is given, and what an engine is to this package."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from dspark_calib.errors import ExportError


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperatureTable:
    """Temperatures with the few facts that engines' own file formats carry beside them.

    Attributes:
        temperatures: T_k per draft position, positive and finite, length γ.
        dataset: Names of the sets fitted on, joined by "+".
        num_samples: Rounds fitted on.
        ece_before: Prefix ECE per position without temperatures, length γ, or None where any is undefined.
        ece_after: The same held out, with temperatures, or None.
    """

    temperatures: tuple[float, ...]
    dataset: str = ""
    num_samples: int = 0
    ece_before: tuple[float, ...] | None = None
    ece_after: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_temperatures(self.temperatures, len(self.temperatures), "the temperature table")

    @property
    def gamma(self) -> int:
        """Drafts in a block."""
        return len(self.temperatures)

    @property
    def is_identity(self) -> bool:
        """Whether every temperature is 1: the engine would schedule by raw confidences."""
        return all(t == 1.0 for t in self.temperatures)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One inference engine: how its setting is written and how the engine itself reads it.

    Attributes:
        name: As `--engine` takes it.
        file_name: Where the setting usually goes.
        render: Table → text of the setting. Raises ExportError where the engine would not load the table.
        parse: (text, γ) → temperatures, by the engine's own rule. Raises ExportError.
        usage: Sentence telling how the engine is given the setting; `{file}` stands for the path.
    """

    name: str
    file_name: str
    render: Callable[[TemperatureTable], str]
    parse: Callable[[str, int], tuple[float, ...]]
    usage: str


def check_temperatures(values: tuple[float, ...], gamma: int, where: str) -> tuple[float, ...]:
    """Return the temperatures unchanged if there are γ of them, all positive and finite.

    Raises:
        ExportError: Naming the first position that breaks the rule.
    """
    if not values or len(values) != gamma:
        raise ExportError(f"{where} holds {len(values)} temperatures where the drafter drafts γ = {gamma}; fit again")
    for position, value in enumerate(values, start=1):
        if not (math.isfinite(value) and value > 0):
            raise ExportError(f"{where}: the temperature of position {position} is {value}; it must be > 0 and finite")
    return values
