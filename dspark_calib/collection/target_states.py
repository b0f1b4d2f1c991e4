"""One target forward over whole sequences: features for the drafter, final states, logits on demand.

The vocabulary projection is kept apart, so that logits exist only for the positions somebody asks for and
only while they are looked at.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dspark_calib.errors import UnsupportedModel

PART_TOKENS = {"cpu": 2048}
"""Tokens of one forward where more at once are no faster, by device: shorter parts waste less on padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStates:
    """What the target computed for n positions of S sequences.

    Attributes:
        features: Outputs of the drafter's feature layers, concatenated, [S, n, F] (F = 0 without such layers).
        final: Input of the vocabulary projection, [S, n, H]; state i predicts token i+1.
    """

    features: Tensor
    final: Tensor


class TargetForward:
    """A transformers causal LM, run without its vocabulary projection.

    Args:
        model: The target, on its device, in evaluation mode.
        layer_ids: 0-based decoder layers whose output is a feature, -1 for the embedding output.
    """

    def __init__(self, model: Any, layer_ids: Sequence[int]) -> None:
        self._model = model
        self._decoder = model.get_decoder()
        self._head = model.get_output_embeddings()
        self._soft_cap = getattr(model.config.get_text_config(), "final_logit_softcapping", None)
        # transformers 5 renames the argument `past_key_values` to `cache`
        parameters = inspect.signature(self._decoder.forward).parameters
        self._cache_argument = "cache" if "cache" in parameters else "past_key_values"
        self._layer_ids = tuple(layer_ids)
        self._head_checked = False

    @property
    def device(self) -> torch.device:
        """Where the target runs."""
        device: torch.device = self._model.device
        return device

    def run(self, tokens: Tensor, cache: Any = None) -> TargetStates:
        """Run the decoder over tokens.

        No attention mask is needed: padding stands on the right, where causal attention never looks.

        Args:
            tokens: int64 [S, n].
            cache: A transformers cache with the tokens before these, which it then holds too; None for whole
                sequences.

        Raises:
            UnsupportedModel: If the model does something to its logits that `logits` does not know.
        """
        self._check_head(tokens)
        with self._recorded_layers() as outputs:
            final = self._decoder(input_ids=tokens, use_cache=cache is not None, **{self._cache_argument: cache})[0]
        features = [outputs[layer] for layer in self._layer_ids]
        return TargetStates(features=torch.cat(features, dim=-1) if features else final[..., :0], final=final)

    def run_in_parts(self, tokens: Tensor, lengths: Sequence[int], batch_tokens: int) -> TargetStates:
        """Run whole sequences in parts of similar length, so that little of the work is padding.

        Args:
            tokens: int64 [S, n], padded on the right.
            lengths: Tokens of each sequence that count, S numbers of at most n.
            batch_tokens: Most sequences × longest sequence of a part; one sequence goes through even where
                that is more.

        Returns:
            States of all sequences [S, n, …]; zeros past each part's longest sequence.
        """
        parts = similar_lengths(lengths, min(batch_tokens, PART_TOKENS.get(tokens.device.type, batch_tokens)))
        if len(parts) == 1:
            return self.run(tokens)
        features = final = tokens.new_empty(0)
        for part in parts:
            rows = torch.tensor(part, device=tokens.device)
            longest = max(lengths[i] for i in part)
            states = self.run(tokens[rows, :longest])
            if not final.numel():
                features = states.features.new_zeros((*tokens.shape, states.features.shape[-1]))
                final = states.final.new_zeros((*tokens.shape, states.final.shape[-1]))
            features[rows, :longest], final[rows, :longest] = states.features, states.final
        return TargetStates(features=features, final=final)

    def logits(self, final: Tensor) -> Tensor:
        """Return target logits [..., V] of final states [..., H]."""
        logits: Tensor = self._head(final)
        if self._soft_cap is not None:
            logits = logits.div_(self._soft_cap).tanh_().mul_(self._soft_cap)
        return logits

    @contextmanager
    def _recorded_layers(self) -> Iterator[dict[int, Tensor]]:
        """Collect the outputs of the feature layers while the decoder runs; only these are kept."""
        outputs: dict[int, Tensor] = {}
        layers = self._decoder.layers
        handles = [
            layers[0].register_forward_pre_hook(_recorder_of_input(outputs), with_kwargs=True)
            if layer < 0
            else layers[layer].register_forward_hook(_recorder_of_output(outputs, layer))
            for layer in self._layer_ids
        ]
        try:
            yield outputs
        finally:
            for handle in handles:
                handle.remove()

    @torch.inference_mode()
    def _check_head(self, tokens: Tensor) -> None:
        """Compare our logits with the model's own once, on a few tokens: scales and caps differ by family."""
        if self._head_checked:
            return
        few = tokens[:1, :8]
        own = self.logits(self._decoder(input_ids=few, use_cache=False)[0][:, -1]).float()
        theirs = self._model(input_ids=few, use_cache=False).logits[:, -1].float()
        error, scale = float((own - theirs).abs().max()), float(theirs.abs().max())
        if not error <= 0.02 * scale:
            raise UnsupportedModel(
                f"{type(self._model).__name__}: its logits are not its vocabulary projection of the last state "
                f"(they differ by {error:.3g}); this version cannot score responses with it"
            )
        self._head_checked = True


def _recorder_of_output(outputs: dict[int, Tensor], layer: int) -> Any:
    def record(_module: Any, _inputs: Any, output: Any) -> None:
        outputs[layer] = output if isinstance(output, Tensor) else output[0]

    return record


def _recorder_of_input(outputs: dict[int, Tensor]) -> Any:
    def record(_module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        outputs[-1] = inputs[0] if inputs else named["hidden_states"]

    return record


def similar_lengths(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Group sequences by length, longest first, so that size × longest of a group stays within the budget.

    >>> similar_lengths([3, 9, 8, 2], 18)
    [[1, 2], [0, 3]]
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= budget:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
