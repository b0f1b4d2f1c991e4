"""The temperatures a search looks at, and how ties between them are settled."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

STEPS_PER_OCTAVE = 32
OCTAVES = 3
FINE_STEP = 0.005
_FINE_PER_UNIT = 200  # 1 / FINE_STEP, exact


def default_grid() -> Floats:
    """Return T = 2^(i/32), i = -96 … 96: from 1/8 to 8 in steps of 2.2 %, with T = 1 among them."""
    return np.exp2(np.arange(-OCTAVES * STEPS_PER_OCTAVE, OCTAVES * STEPS_PER_OCTAVE + 1) / STEPS_PER_OCTAVE)


def fine_grid(best: float) -> Floats:
    """Return the multiples of 0.005 within two grid steps of a grid temperature, inside the grid's range."""
    reach = 2.0 ** (2 / STEPS_PER_OCTAVE)
    low, high = max(best / reach, 2.0**-OCTAVES), min(best * reach, 2.0**OCTAVES)
    first, last = int(np.ceil(low * _FINE_PER_UNIT)), int(np.floor(high * _FINE_PER_UNIT))
    return np.arange(first, last + 1) / _FINE_PER_UNIT


def preference(temperatures: Floats, target: float = 1.0) -> npt.NDArray[np.intp]:
    """Return the order in which equal candidates are preferred: nearest the target in log T, then the larger."""
    # Rounding keeps 2^(i/32) and 2^(-i/32) equally far from 1.
    distance = np.round(np.abs(np.log(temperatures / target)), 12)
    return np.lexsort((-temperatures, distance))


def best_index(temperatures: Floats, objective: Floats) -> int:
    """Return the index of the smallest objective; ties by `preference`."""
    order = preference(temperatures)
    return int(order[np.argmin(objective[order])])


def at_edge(temperature: float) -> bool:
    """Return whether a temperature lies at an end of the default grid, where the true optimum may lie beyond."""
    return temperature <= 2.0**-OCTAVES or temperature >= 2.0**OCTAVES
