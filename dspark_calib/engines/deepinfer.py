"""DeepInfer's environment: one variable with the temperatures, one with γ.

The rule is that of DeepInfer 0.1.0: a value with a comma is split at commas, each part stripped and read
as a float, and their number must equal `DEEPINFER_USE_NEXTN_DECODE`; without a comma it is one float for
all positions. Values are clamped below at 1e-5. NaN passes that parser, so it is refused here.
"""

import math
from collections.abc import Mapping

from dspark_calib.engines.table import TemperatureTable, check_temperatures
from dspark_calib.errors import ExportError

TEMPERATURE_VARIABLE = "DEEPINFER_DFLASH_CONFIDENCE_HEAD_TEMPERATURE"
GAMMA_VARIABLE = "DEEPINFER_USE_NEXTN_DECODE"
MAX_GAMMA = 32
_LOWEST = 1e-5


def deepinfer_variables(table: TemperatureTable) -> dict[str, str]:
    """Return the variables and their values; γ = 1 is a plain scalar.

    Raises:
        ExportError: If γ exceeds DeepInfer's 32 block slots, or a temperature lies under its clamp.
    """
    if table.gamma > MAX_GAMMA:
        raise ExportError(f"DeepInfer takes at most {MAX_GAMMA} drafts a block, this drafter drafts {table.gamma}")
    for position, value in enumerate(table.temperatures, start=1):
        if value < _LOWEST:
            raise ExportError(f"DeepInfer would clamp the temperature {value} of position {position} to {_LOWEST}")
    return {
        GAMMA_VARIABLE: str(table.gamma),
        TEMPERATURE_VARIABLE: ",".join(repr(float(t)) for t in table.temperatures),
    }


def read_deepinfer_variables(variables: Mapping[str, str], gamma: int) -> tuple[float, ...]:
    """Return the temperatures DeepInfer would use, by its own rule.

    Raises:
        ExportError: If DeepInfer would refuse the value, use another γ, or let NaN through.
    """
    slots = variables.get(GAMMA_VARIABLE, "5")
    if not slots.strip().isdecimal() or int(slots) != gamma:
        raise ExportError(f"{GAMMA_VARIABLE} = {slots}: the drafter drafts γ = {gamma}")
    value = variables.get(TEMPERATURE_VARIABLE, "1.0")
    if "," not in value:
        return check_temperatures((max(_float(value), _LOWEST),) * gamma, gamma, TEMPERATURE_VARIABLE)
    parts = tuple(max(_float(part), _LOWEST) for part in value.split(","))
    return check_temperatures(parts, gamma, TEMPERATURE_VARIABLE)


def _float(text: str) -> float:
    try:
        value = float(text.strip())
    except ValueError as error:
        raise ExportError(f"{TEMPERATURE_VARIABLE}: DeepInfer reads no float from {text.strip()!r}") from error
    if math.isnan(value):
        raise ExportError(f"{TEMPERATURE_VARIABLE} holds NaN, which DeepInfer does not notice; fit again")
    return value
