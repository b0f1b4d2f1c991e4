"""Which positions of a block have a known label: the rules of DESIGN "Labels", and nothing else.

P prompt tokens, R response tokens; m = P + R - 1 - t tokens lie after the anchor t.
"""

import numpy as np
import numpy.typing as npt


def count_observed(
    accepted: npt.ArrayLike, tokens_left: npt.ArrayLike, verified: npt.ArrayLike, ended_by_stop: npt.ArrayLike
) -> npt.NDArray[np.int16]:
    """Return how many positions of each block have a known label.

    A response that ended with a stop token leaves positions unknown only where that token was accepted
    (DeepSpec's rule): a block rejected earlier is known to its end, even past the response. A response cut by
    a limit leaves everything past the cut unknown, whatever was accepted, so that the outcome never chooses
    what is observed.

    Args:
        accepted: Drafts accepted, 0..min(verified, tokens_left), shape [n].
        tokens_left: m, response tokens after the anchor, shape [n].
        verified: Drafts sent to verification (γ when nothing was cut), shape [n].
        ended_by_stop: Whether the response ended with a stop token, shape [n].

    >>> count_observed([2, 1, 2, 1], [2, 2, 1, 1], [4, 4, 4, 4], [True, True, False, False]).tolist()
    [2, 4, 1, 1]
    """
    tau, m, v = (np.asarray(x, dtype=np.int64) for x in (accepted, tokens_left, verified))
    stop_accepted = (tau == m) & (m < v)
    by_stop = np.where(stop_accepted, m, v)
    return np.where(ended_by_stop, by_stop, np.minimum(m, v)).astype(np.int16)
