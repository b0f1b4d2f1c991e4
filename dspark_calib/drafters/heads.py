"""The small heads of a DSpark block: sequential Markov heads and the confidence head.

Facts read off DeepSpec's model code: the Markov bias applies at the first draft position too, with the
anchor token as the previous token; the vanilla head has no activation; the gated and rnn heads also feed
the plain embedding W1[x_{k-1}] to the confidence head.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.errors import CheckpointError, UnsupportedModel


class MarkovMixer(Protocol):
    """Turns the previous token's embedding into the vector that W2 maps to a bias on the logits."""

    def mix(self, hidden: Tensor, embedded: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vector for W2 and the state for the next slot.

        Args:
            hidden: h_k, shape [..., H].
            embedded: W1[x_{k-1}], shape [..., r].
            state: s_{k-1}, shape [..., r]; zeros at the first slot.
        """
        ...


@dataclass(frozen=True, slots=True)
class VanillaMixer:
    """bias = W2 · W1[x_{k-1}]."""

    def mix(self, hidden: Tensor, embedded: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """See `MarkovMixer`; neither hidden state nor memory is used."""
        return embedded, state


@dataclass(frozen=True, slots=True)
class GatedMixer:
    """g = σ(gate_proj([h_k; e])), bias = W2 · (g ⊙ e), with e = W1[x_{k-1}].

    Attributes:
        weight: [r, H + r].
        bias: [r].
    """

    weight: Tensor
    bias: Tensor

    def mix(self, hidden: Tensor, embedded: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `MarkovMixer`; no memory is used."""
        gate = linear(torch.cat((hidden, embedded), dim=-1), self.weight, self.bias).sigmoid()
        return gate * embedded, state


@dataclass(frozen=True, slots=True)
class RnnMixer:
    """(a, b, o) = joint_proj([s; e; h_k]); s ← σ(a) ⊙ s + (1 - σ(a)) ⊙ tanh(b); bias = W2 · tanh(o).

    Attributes:
        weight: [3r, 2r + H].
        bias: [3r].
    """

    weight: Tensor
    bias: Tensor

    def mix(self, hidden: Tensor, embedded: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `MarkovMixer`."""
        joint = linear(torch.cat((state, embedded, hidden), dim=-1), self.weight, self.bias)
        gate, candidate, output = joint.chunk(3, dim=-1)
        return output.tanh(), torch.lerp(candidate.tanh(), state, gate.sigmoid())


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkovHead:
    """Adds W2 · mix(h_k, W1[x_{k-1}]) to the base logits.

    Attributes:
        embed: W1 [V, r].
        project: W2 [V, r].
        mixer: The head's type.
    """

    embed: Tensor
    project: Tensor
    mixer: MarkovMixer

    @property
    def rank(self) -> int:
        """Markov rank, r."""
        return int(self.embed.shape[1])

    def add_bias(self, logits: Tensor, vector: Tensor) -> Tensor:
        """Add W2 · vector to the base logits [..., V] in place and return them."""
        flat = logits.view(-1, logits.shape[-1])
        flat.addmm_(vector.reshape(-1, vector.shape[-1]), self.project.T)
        return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceHead:
    """z_k = proj([h_k; W1[x_{k-1}]]), or proj(h_k); c_k = σ(z_k / T_k).

    Attributes:
        on_hidden: The projection's weights on h_k, [H].
        on_markov: Its weights on W1[x_{k-1}], [r]; None where the head sees h_k alone.
        bias: [1].
    """

    on_hidden: Tensor
    on_markov: Tensor | None
    bias: Tensor

    def logits(self, hidden: Tensor, embedded: Tensor | None) -> Tensor:
        """Return z_k [...] for h_k [..., H] and W1[x_{k-1}] [..., r]."""
        z = hidden @ self.on_hidden + self.bias
        return z if self.on_markov is None or embedded is None else z + embedded @ self.on_markov


def read_markov_head(
    checkpoint: DrafterCheckpoint, hidden_size: int, vocab_size: int, draft_vocab_size: int | None = None
) -> MarkovHead | None:
    """Read the sequential head; None where markov_rank is 0 (DFlash).

    Args:
        checkpoint: The drafter.
        hidden_size: H.
        vocab_size: V, rows of W1.
        draft_vocab_size: Rows of W2 where the draft vocabulary is pruned; else V.

    Raises:
        UnsupportedModel: If markov_head_type is unknown.
        CheckpointError: If a weight is missing, misshapen or not finite.
    """
    rank = checkpoint.integer("markov_rank", 0, default=0)
    if rank == 0:
        return None
    return MarkovHead(
        embed=checkpoint.tensor("markov_head.markov_w1.weight", (vocab_size, rank)),
        project=checkpoint.tensor("markov_head.markov_w2.weight", (draft_vocab_size or vocab_size, rank)),
        mixer=_read_mixer(checkpoint, rank, hidden_size),
    )


def _read_mixer(checkpoint: DrafterCheckpoint, rank: int, hidden_size: int) -> MarkovMixer:
    kind = checkpoint.config.get("markov_head_type", "vanilla")
    if kind == "vanilla":
        return VanillaMixer()
    if kind == "gated":
        weight = checkpoint.tensor("markov_head.gate_proj.weight", (rank, hidden_size + rank))
        return GatedMixer(weight, checkpoint.tensor("markov_head.gate_proj.bias", (rank,)))
    if kind == "rnn":
        weight = checkpoint.tensor("markov_head.joint_proj.weight", (3 * rank, 2 * rank + hidden_size))
        return RnnMixer(weight, checkpoint.tensor("markov_head.joint_proj.bias", (3 * rank,)))
    raise UnsupportedModel(
        f"{checkpoint.config_file}, markov_head_type = {kind!r}: this version runs vanilla, gated and rnn heads"
    )


def read_confidence_head(
    checkpoint: DrafterCheckpoint, hidden_size: int, markov: MarkovHead | None
) -> ConfidenceHead | None:
    """Read the confidence head; None where the checkpoint has none.

    Raises:
        CheckpointError: If a weight is missing or misshapen, or the head wants a Markov head that is not there.
    """
    if not checkpoint.flag("enable_confidence_head", default=False):
        return None
    with_markov = checkpoint.flag("confidence_head_with_markov", default=False)
    if with_markov and markov is None:
        raise CheckpointError(f"{checkpoint.config_file}, confidence_head_with_markov = true: markov_rank is 0")
    rank = markov.rank if with_markov and markov is not None else 0
    weight = checkpoint.tensor("confidence_head.proj.weight", (1, hidden_size + rank))[0]
    has_bias = "confidence_head.proj.bias" in checkpoint.tensors
    bias = checkpoint.tensor("confidence_head.proj.bias", (1,)) if has_bias else weight.new_zeros(1)
    return ConfidenceHead(
        on_hidden=weight[:hidden_size], on_markov=weight[hidden_size:] if with_markov else None, bias=bias
    )
