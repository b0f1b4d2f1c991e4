"""Proper scores: the Brier score and the log loss, from arrays."""

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import checked_labels, checked_rows, clamp


def compute_brier(predicted: npt.ArrayLike, observed: npt.ArrayLike) -> float:
    """Return mean (p - y)² with p clamped as DeepSpec's evaluator does, rows of shape [n].

    Raises:
        ValueError: If there is no row, a value lies outside [0, 1] or is not finite, or shapes differ.
    """
    p, y = checked_rows(predicted, observed)
    return float(np.mean((clamp(p) - y) ** 2))


def log_losses(log_survival: npt.ArrayLike, observed: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return -log a where the label is 1 and -log(1 - a) where it is 0, in nats, same shape.

    Args:
        log_survival: log a ≤ 0, a sum of log-sigmoids; nothing saturates at a = 1 in floating point.
        observed: Labels 0 or 1, same shape.
    """
    s = np.asarray(log_survival, dtype=np.float64)
    # -expm1(s) = 1 - a keeps its digits as a nears 1; s = 0 in floating point means a logit beyond 745.
    complement = np.log(np.maximum(-np.expm1(s), np.finfo(np.float64).tiny))
    return np.where(np.asarray(observed, dtype=bool), -s, -complement)


def compute_log_loss(log_survival: npt.ArrayLike, observed: npt.ArrayLike) -> float:
    """Return the mean of `log_losses`, rows of shape [n].

    Raises:
        ValueError: If there is no row, a log survival is above 0 or NaN, or a label is neither 0 nor 1.
    """
    s = np.asarray(log_survival, dtype=np.float64)
    labels = checked_labels(observed, len(s))
    if len(s) == 0:
        raise ValueError("the log loss of no rows is undefined")
    if not (s <= 0).all():
        raise ValueError(
            f"log_survival[{int(np.argmin(s <= 0))}] = {s[np.argmin(s <= 0)]} is the log of no probability"
        )
    return float(log_losses(s, labels).mean())
