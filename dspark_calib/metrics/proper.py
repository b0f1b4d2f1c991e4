"""Proper scores: the Brier score and the log loss, from arrays."""

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import clamp


def compute_brier(predicted: npt.ArrayLike, observed: npt.ArrayLike) -> float:
    """Return mean (p - y)² with p clamped as DeepSpec's evaluator does, rows of shape [n]."""
    p, y = clamp(predicted), np.asarray(observed, dtype=np.float64)
    if p.shape != y.shape or p.size == 0:
        raise ValueError(f"predicted and observed must be [n] alike with n ≥ 1, got {p.shape} and {y.shape}")
    return float(np.mean((p - y) ** 2))


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
    """Return the mean of `log_losses`.

    Raises:
        ValueError: If there is no row.
    """
    losses = log_losses(log_survival, observed)
    if losses.size == 0:
        raise ValueError("the log loss of no rows is undefined")
    return float(losses.mean())
