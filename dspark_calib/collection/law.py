"""The verification law: who accepts what, judged in parallel or as an engine does.

Greedy (temperature below 1e-5): a draft is accepted iff it is the target's token.

Sampled: p = softmax(target/τ), q = softmax(draft/τ). An engine accepts x_k ~ q with probability
min(1, p(x_k)/q(x_k)) and resamples the first rejection from max(p-q, 0). Collection knows the target's
token y ~ p already and draws x_k from the *reverse* maximal coupling: x_k = y with probability
min(1, q(y)/p(y)), else x_k ~ max(q-p, 0). The joint law of (x_k, accepted, y) is the same (Leviathan et al.
2023, App. A.1 read backwards; checked by enumeration in the tests), so a response that lies there judges
every block without decoding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_calib.collection.vocabulary_rows import top_two

GREEDY_BELOW = 1e-5
"""Temperatures below this mean greedy, in DeepSpec as in the engines."""


def is_greedy(temperature: float) -> bool:
    """Whether a sampling temperature means argmax."""
    return temperature < GREEDY_BELOW


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRows:
    """What the drafter's logits say about one position of n blocks, at softmax temperature 1.

    Attributes:
        logits: Float32 [n, V].
        top_token: Highest logit's token, int64 [n].
        top_logit: Highest logit [n].
        margin: Top-1 minus top-2 logit [n].
        weights: exp(logits - top_logit) [n, V].
        total: Sum of the weights [n].
        entropy: Of the softmax, nats [n].
    """

    logits: Tensor
    top_token: Tensor
    top_logit: Tensor
    margin: Tensor
    weights: Tensor
    total: Tensor
    entropy: Tensor

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Return log q(x) of one token a row [n]."""
        chosen = self.logits.gather(1, tokens[:, None])[:, 0]
        return chosen - self.top_logit - self.total.log()

    def probabilities(self, temperature: float) -> Tensor:
        """Return q = softmax(logits/τ) [n, V]; the weights are used up at τ = 1."""
        if temperature == 1.0:
            return self.weights.div_(self.total[:, None])
        return softmax(self.logits, temperature)


def softmax(logits: Tensor, temperature: float) -> Tensor:
    """Return the probabilities at temperature τ, in float32."""
    return torch.softmax(logits.float() / temperature, dim=-1)


def read_draft_rows(logits: Tensor) -> DraftRows:
    """Describe draft logits [n, V] (any float type; finite)."""
    z = logits.float()
    top, token, second = top_two(z)
    weights = (z - top[:, None]).exp_()
    total = weights.sum(dim=-1)
    # H = log Σ w - Σ w (z - top) / Σ w; dot products without a third [n, V] tensor
    mean = torch.bmm(weights[:, None, :], z[:, :, None])[:, 0, 0] / total - top
    return DraftRows(
        logits=z,
        top_token=token,
        top_logit=top,
        margin=top - second,
        weights=weights,
        total=total,
        entropy=(total.log() - mean).clamp_(min=0.0),
    )


def couple(q: Tensor, p: Tensor, target_tokens: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Decide by the reverse maximal coupling which of the target's tokens the drafter proposed.

    Args:
        q: Draft probabilities [n, V]; overwritten with max(q-p, 0), the weights a rejected draft comes from.
        p: Target probabilities [n, V], those the tokens were drawn from.
        target_tokens: y ~ p, int64 [n].
        uniforms: u in [0, 1), [n]: accepted (x = y) iff u·p(y) < q(y).

    Returns:
        Accepted bool [n], acceptance probability α = Σ min(p, q) [n].
    """
    y = target_tokens[:, None]
    accepted = uniforms * p.gather(1, y)[:, 0] < q.gather(1, y)[:, 0]
    mass = q.sub_(p).clamp_(min=0.0).sum(dim=-1)
    accepted |= mass <= 0  # q = p up to rounding: nothing else to draw
    return accepted, (1.0 - mass).clamp_(0.0, 1.0)  # Σ min(p, q) = Σ q - Σ max(q-p, 0)
