"""Smooth ECE: calibration error without bins (Błasiok and Nakkiran, 2309.12236).

smECE_σ = Σ_grid |(r * K_σ)|, where r holds the residuals y - p at p and K_σ is the Gaussian kernel
reflected at 0 and 1. The reported value is the fixed point smECE_σ = σ, so no bandwidth is chosen by hand.
"""

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.bins import Floats, checked_rows, clamp, weighted_counts

GRID = 2000
_TOLERANCE = 1e-4


def smooth_ece_of_residuals(residuals: Floats, total: float) -> float | None:
    """Return the smooth ECE of residual sums on an even grid over [0, 1].

    Args:
        residuals: Σ(y - p) of the rows nearest to each grid point i/(m-1), shape [m].
        total: Number of rows.
    """
    if total <= 0:
        return None
    spectrum = _reflected_spectrum(residuals / total)
    low, high = _TOLERANCE, 1.0
    if _smoothed(spectrum, len(residuals), high) > high:
        return high
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        if _smoothed(spectrum, len(residuals), middle) < middle:
            high = middle
        else:
            low = middle
    return float(_smoothed(spectrum, len(residuals), high))


def compute_smooth_ece(predicted: npt.ArrayLike, observed: npt.ArrayLike) -> float:
    """Return the smooth ECE of arrays.

    Raises:
        ValueError: If there is no row, a value lies outside [0, 1] or is not finite, or shapes differ.
    """
    p, y = checked_rows(predicted, observed)
    p = clamp(p)
    value = smooth_ece_of_residuals(residual_grid(p, y), float(len(p)))
    return 0.0 if value is None else value


def residual_grid(clamped: Floats, observed: Floats) -> Floats:
    """Return Σ(y - p) per grid point, each residual shared linearly between its two neighbours, shape [2001]."""
    place = clamped * GRID
    left = np.minimum(place.astype(np.int64), GRID - 1)
    residual, share = observed - clamped, place - left
    grid = weighted_counts(left, residual * (1 - share), GRID + 1)
    return grid + weighted_counts(left + 1, residual * share, GRID + 1)


def _reflected_spectrum(residuals: Floats) -> Floats:
    """Return the cosine transform, whose basis reflects at both ends by construction."""
    from scipy.fft import dct

    inner = residuals.copy()
    inner[[0, -1]] *= 2  # the type-1 transform counts the end points half
    return np.asarray(dct(inner, type=1))


def _smoothed(spectrum: Floats, points: int, bandwidth: float) -> float:
    """Return Σ |r * K_σ|: a Gaussian damps frequency j by exp(-(π j σ)²/2) on the unit interval."""
    from scipy.fft import idct

    frequency = np.arange(points)
    damped = spectrum * np.exp(-((np.pi * frequency * bandwidth) ** 2) / 2)
    smooth = idct(damped, type=1)
    smooth[[0, -1]] /= 2
    return float(np.abs(smooth).sum())
