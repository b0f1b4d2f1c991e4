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

    def run_in_parts(self, tokens: Tensor, batch_tokens: int) -> TargetStates:
        """Run whole sequences [S, n], as many at once as keep sequences × n within `batch_tokens` (at least 1)."""
        part = max(1, batch_tokens // max(1, tokens.shape[1]))
        parts = [self.run(tokens[i : i + part]) for i in range(0, tokens.shape[0], part)]
        if len(parts) == 1:
            return parts[0]
        return TargetStates(features=torch.cat([p.features for p in parts]), final=torch.cat([p.final for p in parts]))

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
