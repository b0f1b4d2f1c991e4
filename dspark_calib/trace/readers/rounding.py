"""Logits of probabilities that were rounded when logged, and the interval each could have come from.

SGLang writes confidences with 4 decimals: 0.9999 stands for anything in [0.99985, 0.99995). The logit
stored is that of the middle of what is possible inside (0, 1), and the interval follows from it.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def rounded_logits(probabilities: npt.ArrayLike, decimals: int) -> Floats:
    """Return the logits of rounded probabilities; finite for 0 and 1 too.

    >>> rounded_logits([0.5, 1.0], 4).round(3).tolist()
    [0.0, 10.597]
    """
    low, high = _probability_interval(np.asarray(probabilities, dtype=np.float64), decimals)
    return _logit((low + high) / 2)


def rounding_interval(logits: npt.ArrayLike, decimals: int) -> tuple[Floats, Floats]:
    """Return the lowest and highest logit that rounding could have turned into each of these.

    Args:
        logits: As `rounded_logits` gave them (float32 will do), before any temperature is put back.
        decimals: Decimals of the log.

    Returns:
        Bounds in the shape of `logits`; infinite at the ends of (0, 1).
    """
    rounded = np.round(1.0 / (1.0 + np.exp(-np.asarray(logits, dtype=np.float64))), decimals)
    low, high = _probability_interval(rounded, decimals)
    with np.errstate(divide="ignore"):
        return _logit(low), _logit(high)


def _probability_interval(p: Floats, decimals: int) -> tuple[Floats, Floats]:
    half = 0.5 * 10.0**-decimals
    return np.clip(p - half, 0.0, 1.0), np.clip(p + half, 0.0, 1.0)


def _logit(p: Floats) -> Floats:
    return np.asarray(np.log(p) - np.log1p(-p))
