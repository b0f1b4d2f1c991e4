"""Numbers out of untrusted JSON: float32 logits and 0/1 masks, with the culprit named."""

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.readers.wording import shown


def as_number(value: object, where: str) -> float:
    """Return a JSON number as a float; null counts as not a number, which callers refuse row by row.

    Raises:
        TraceFormatError: If the value is text, true, false, a list or an object.
    """
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TraceFormatError(f"{where}: expected a number, found {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def as_count(value: object, where: str, most: int = 2**31 - 1) -> int:
    """Return a JSON whole number from 0 to `most`.

    Raises:
        TraceFormatError: If it is another thing.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise TraceFormatError(f"{where}: expected a whole number from 0 to {most}, found {shown(value)}")
    return value


def as_float32(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return float32; numbers beyond its range become infinite, which callers refuse."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values, dtype=np.float64).astype(np.float32)


def prefix_lengths(mask: npt.NDArray[np.generic], where: str, first_row: int = 0) -> npt.NDArray[np.int64]:
    """Return how many leading ones each row of a 0/1 mask has, int64 [n].

    Raises:
        TraceFormatError: If a value is neither 0 nor 1, or a one follows a zero.
    """
    values = np.asarray(mask)
    ones = values == 1
    odd = ~(ones | (values == 0)).all(axis=1)
    if odd.any():
        raise TraceFormatError(f"{where}, row {first_row + int(np.argmax(odd))}: a mask holds only 0 and 1")
    broken = (ones[:, 1:] & ~ones[:, :-1]).any(axis=1)
    if broken.any():
        row = first_row + int(np.argmax(broken))
        raise TraceFormatError(
            f"{where}, row {row}: a one follows a zero, so this is no prefix; was the log reordered?"
        )
    lengths: npt.NDArray[np.int64] = ones.sum(axis=1)
    return lengths
