"""Where a trace's confidence logits come from: the drafter's head, or a proxy that needs no head.

An engine whose drafter has no confidence head schedules by how sure the drafter looks. Each proxy is a
probability-like number c of the softmax at temperature 1, kept as the logit z = log c - log(1 - c) so that
temperatures apply to it as to a head:

- `draft-prob`: c = q(x_k), the probability of the drafted token;
- `margin`: z = top-1 minus top-2 logit, i.e. c = σ(margin), the top token against the runner-up alone;
- `entropy`: c = exp(-H), one over the perplexity of the draft distribution.

A logit is kept within ±`MAX_PROXY_LOGIT`, where float32 probabilities end.
"""

import numpy as np
import numpy.typing as npt

SOURCES = ("head", "draft-prob", "margin", "entropy")
MAX_PROXY_LOGIT = 24 * np.log(2)
"""log(2^24): the logit of the largest float32 below 1, about 16.6."""

Floats = npt.NDArray[np.float32]


def proxy_logits(source: str, logprobs: Floats, margins: Floats, entropies: Floats) -> Floats:
    """Return the confidence logits of a proxy.

    Args:
        source: `draft-prob`, `margin` or `entropy`.
        logprobs: log q(x_k), [n, γ].
        margins: Top-1 minus top-2 logit, [n, γ].
        entropies: Nats, [n, γ].

    Raises:
        ValueError: If the source is none of the three.
    """
    if source == "margin":
        logits = margins.astype(np.float64)
    elif source in ("draft-prob", "entropy"):
        logits = _logit_of_log(logprobs if source == "draft-prob" else -entropies)
    else:
        raise ValueError(f"unknown confidence proxy {source!r}, expected one of {', '.join(SOURCES[1:])}")
    return np.clip(logits, -MAX_PROXY_LOGIT, MAX_PROXY_LOGIT).astype(np.float32)


def _logit_of_log(log_c: Floats) -> npt.NDArray[np.float64]:
    """Return log c - log(1 - c) of log c ≤ 0, in float64."""
    log_c64 = np.minimum(log_c.astype(np.float64), -np.finfo(np.float64).tiny)
    return log_c64 - np.log(-np.expm1(log_c64))
