"""Confidence, prefix survival and prefix labels: the algebra everything else shares.

Confidence logits z_k become confidences c_k = σ(z_k/T_k), and their running product is the prefix
survival a_k = Π_{i≤k} c_i (DSpark, §3.2.1). All arithmetic is float64 of the float32 logit, so that
every kernel of the toolkit gives the same numbers. No statistics here.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


def scaled_logits(logits: npt.ArrayLike, temperatures: npt.ArrayLike | None = None) -> Floats:
    """Return z/T in float64.

    Args:
        logits: Raw confidence logits, shape [rounds, γ].
        temperatures: One positive temperature a position, shape [γ]; None means 1 everywhere.

    Raises:
        ValueError: If a temperature is not positive and finite, or their number is not γ.
    """
    z = np.asarray(logits, dtype=np.float64)
    if temperatures is None:
        return z
    t = np.asarray(temperatures, dtype=np.float64)
    if t.shape != (z.shape[-1],) or not np.all((t > 0) & np.isfinite(t)):
        raise ValueError(f"temperatures must be {z.shape[-1]} positive finite numbers, got {t.tolist()}")
    return z / t


def sigmoid(x: npt.ArrayLike) -> Floats:
    """Return 1/(1+e^-x) in float64, without overflow."""
    z = np.asarray(x, dtype=np.float64)
    e = np.exp(-np.abs(z))
    # e ≤ 1, so its maximum with "z ≥ 0" is 1 there and e below: several times faster than a choice.
    return np.asarray(np.maximum(e, z >= 0) / (1.0 + e), dtype=np.float64)


def log_sigmoid(x: npt.ArrayLike) -> Floats:
    """Return log σ(x) = min(x, 0) - log(1 + e^-|x|) in float64; never saturates."""
    z = np.asarray(x, dtype=np.float64)
    return np.asarray(np.minimum(z, 0.0) - np.log1p(np.exp(-np.abs(z))), dtype=np.float64)


def confidence(logits: npt.ArrayLike, temperatures: npt.ArrayLike | None = None) -> Floats:
    """Return c_k = σ(z_k/T_k), the acceptance probability of draft k given the drafts before it.

    Args:
        logits: Raw confidence logits, shape [rounds, γ].
        temperatures: Shape [γ], or None for 1.

    Returns:
        Probabilities, float64, shape [rounds, γ].
    """
    return sigmoid(scaled_logits(logits, temperatures))


def prefix_survival(logits: npt.ArrayLike, temperatures: npt.ArrayLike | None = None) -> Floats:
    """Return a_k = Π_{i≤k} σ(z_i/T_i) (DSpark, §3.2.1), shape [rounds, γ].

    >>> prefix_survival([[2.0, 1.0, 0.0]]).round(6).tolist()
    [[0.880797, 0.643914, 0.321957]]
    """
    return np.cumprod(confidence(logits, temperatures), axis=-1, dtype=np.float64)


def log_survival(logits: npt.ArrayLike, temperatures: npt.ArrayLike | None = None) -> Floats:
    """Return log a_k as a sum of log-sigmoids, shape [rounds, γ]: the score for every rank measure."""
    return np.cumsum(log_sigmoid(scaled_logits(logits, temperatures)), axis=-1)


def prefix_labels(accepted: npt.ArrayLike, gamma: int) -> Booleans:
    """Return whether the first k drafts were all accepted, shape [rounds, γ].

    >>> prefix_labels([2, 0], 3).astype(int).tolist()
    [[1, 1, 0], [0, 0, 0]]
    """
    return np.asarray(accepted)[:, None] >= np.arange(1, gamma + 1)


def observed_mask(observed: npt.ArrayLike, gamma: int) -> Booleans:
    """Return which positions carry a label, shape [rounds, γ]."""
    return np.asarray(observed)[:, None] >= np.arange(1, gamma + 1)


def conditional_mask(accepted: npt.ArrayLike, observed: npt.ArrayLike, gamma: int) -> Booleans:
    """Return where draft k was judged given its prefix: accepted ≥ k-1 and observed ≥ k, shape [rounds, γ]."""
    k = np.arange(1, gamma + 1)
    return (np.asarray(accepted)[:, None] >= k - 1) & (np.asarray(observed)[:, None] >= k)
