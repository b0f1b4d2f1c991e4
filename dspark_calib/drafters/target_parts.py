"""What a drafter borrows from its target: sizes to agree on, embeddings and vocabulary projection."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dspark_calib.errors import CheckpointError, UnsupportedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetParts:
    """The target as a drafter sees it.

    Attributes:
        name: Hub name or folder, for messages.
        hidden_size: H.
        vocab_size: V, rows of the embedding and of the vocabulary projection.
        num_layers: Decoder layers.
        embed_tokens: Input embeddings [V, H], on the target's device in its dtype.
        lm_head: Vocabulary projection [V, H].
        stop_tokens: Tokens that end a response, by the generation config.
    """

    name: str
    hidden_size: int
    vocab_size: int
    num_layers: int
    embed_tokens: Tensor
    lm_head: Tensor
    stop_tokens: tuple[int, ...] = ()

    @property
    def device(self) -> torch.device:
        """The target's device."""
        return self.embed_tokens.device

    @property
    def dtype(self) -> torch.dtype:
        """The target's dtype."""
        return self.embed_tokens.dtype


def target_parts(model: Any, name: str) -> TargetParts:
    """Read the parts off a transformers causal LM.

    Raises:
        UnsupportedModel: If the model has no token embeddings or no vocabulary projection of one weight.
    """
    embeddings, head = model.get_input_embeddings(), model.get_output_embeddings()
    if embeddings is None or head is None:
        raise UnsupportedModel(f"{name}: the target has no token embeddings or no vocabulary projection")
    config = model.config.get_text_config()
    return TargetParts(
        name=name,
        hidden_size=int(config.hidden_size),
        vocab_size=int(head.weight.shape[0]),
        num_layers=int(config.num_hidden_layers),
        embed_tokens=embeddings.weight.detach(),
        lm_head=head.weight.detach(),
        stop_tokens=_stop_tokens(model),
    )


def _stop_tokens(model: Any) -> tuple[int, ...]:
    """Return the generation config's eos_token_id, which may be absent, a number or a list."""
    generation = getattr(model, "generation_config", None)
    eos = getattr(generation, "eos_token_id", None)
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list) else (eos,)


def check_layer_ids(ids: Sequence[int], target: TargetParts, where: str) -> None:
    """Refuse feature layers the target cannot give.

    transformers stores the *normalised* state after the last decoder layer, so that layer is no feature
    (DeepSpec trains on the layers before it).

    Args:
        ids: 0-based decoder layers, -1 for the embedding output.
        target: The target.
        where: File and field, for the message.

    Raises:
        CheckpointError: Naming the id that does not fit.
    """
    for layer in ids:
        if not -1 <= layer <= target.num_layers - 2:
            raise CheckpointError(
                f"{where} holds {layer}: {target.name} has {target.num_layers} layers, so layers -1 to "
                f"{target.num_layers - 2} can be features; is this the drafter of another target?"
            )


def check_fits(field: str, value: int, expected: int, target: TargetParts, where: str) -> None:
    """Refuse a size that differs from the target's.

    Raises:
        CheckpointError: Naming file, field and both values.
    """
    if value != expected:
        raise CheckpointError(
            f"{where}, {field} = {value}: {target.name} has {expected}; is this the drafter of another target?"
        )
