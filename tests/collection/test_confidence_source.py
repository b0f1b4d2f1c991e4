"""Proxies of a confidence head: monotone, finite, and what their names say."""

import numpy as np
import pytest
from scipy.special import logit

from dspark_calib.collection.confidence_source import MAX_PROXY_LOGIT, proxy_logits


def test_proxies_are_the_logits_of_their_definitions() -> None:
    """draft-prob is logit q, entropy is logit e^-H, margin is itself."""
    q = np.array([[0.01, 0.5, 0.99]], dtype=np.float32)
    h = np.array([[3.0, 0.7, 0.001]], dtype=np.float32)
    margin = np.array([[0.0, 1.5, 9.0]], dtype=np.float32)
    np.testing.assert_allclose(
        proxy_logits("draft-prob", np.log(q), margin, h), logit(q.astype(float)), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        proxy_logits("entropy", np.log(q), margin, h), logit(np.exp(-h.astype(float))), rtol=1e-5
    )
    np.testing.assert_array_equal(proxy_logits("margin", np.log(q), margin, h), margin)


def test_certainty_stays_finite() -> None:
    """q = 1, no entropy, an endless margin: the largest logit, never infinity."""
    zero, endless = np.zeros((1, 1), np.float32), np.full((1, 1), 1e30, np.float32)
    for source in ("draft-prob", "margin", "entropy"):
        np.testing.assert_allclose(proxy_logits(source, zero, endless, zero), MAX_PROXY_LOGIT, rtol=1e-6)


def test_unknown_proxies_are_refused() -> None:
    """A proxy that does not exist is named."""
    block = np.zeros((1, 1), np.float32)
    with pytest.raises(ValueError, match="'top'"):
        proxy_logits("top", block, block, block)
