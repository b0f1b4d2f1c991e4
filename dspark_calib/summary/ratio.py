"""Ratios of sums over prompts, with their clustered interval."""

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.estimate import UNDEFINED, Estimate, normal_estimate

Floats = npt.NDArray[np.float64]


def clustered_ratio(numerator: Floats, denominator: Floats) -> Estimate:
    """Return Σx/Σy with the linearised standard error over clusters.

    A cluster's influence on r = Σx/Σy is (x_c - r·y_c)/Σy; its variance is summed with the factor G/(G-1)
    (Cochran 1977, §6.4). Rounds of one prompt may depend on each other in any way.

    Args:
        numerator: x_c, shape [clusters].
        denominator: y_c ≥ 0, shape [clusters]; clusters with 0 do not count.

    Returns:
        UNDEFINED where Σy = 0; without an interval where only one cluster counts.
    """
    counted = denominator > 0
    x, y = numerator[counted], denominator[counted]
    total = float(y.sum())
    if total == 0:
        return UNDEFINED
    ratio = float(x.sum()) / total
    clusters = len(y)
    if clusters < 2:
        return Estimate(value=ratio)
    influence = (x - ratio * y) / total
    return normal_estimate(ratio, float(np.sqrt(np.square(influence).sum() * clusters / (clusters - 1))))
