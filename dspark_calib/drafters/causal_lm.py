"""An independent causal language model as drafter: γ steps for every anchor at once under a tree mask.

The model reads each sequence once; its keys and values are shared by all blocks. Every step then feeds one
token a block (the anchor, then the drafts) and each token sees the text before its anchor and the chain of
its own block. Blocks are stepped in parts, so that chains never outgrow the shared text.

Any transformers causal LM that honours a 4-D attention mask, `position_ids` and a key-value cache will do.
That is not taken on trust: `check_tree_steps` compares a tree of two blocks with plain forwards at loading.
Loading the model and comparing tokenizers is in `causal_lm_loading`.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from dspark_calib.drafters.drafter import IMPOSSIBLE_LOGIT, DraftStep, wide_enough
from dspark_calib.errors import CollectionError, UnsupportedModel

CHECK_TOLERANCE = 1e-2
"""Largest difference of logits, relative to their spread, between tree steps and plain forwards in float32."""
_ATTENDING_LAYERS = {"full_attention", "sliding_attention"}


class CausalLMDrafter:
    """A draft model behind the drafter interface.

    Attributes:
        gamma: Draft positions of a block, γ.
        vocab_size: V of the target; ids the draft model does not have are never drafted.
    """

    def __init__(self, model: Any, *, gamma: int, vocab_size: int) -> None:
        """Take a transformers causal LM in evaluation mode, on its device."""
        self._model = model
        self._config = model.config.get_text_config()
        # transformers 5 renames the argument `past_key_values` to `cache`
        self._cache_argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self._positions: int | None = getattr(self._config, "max_position_embeddings", None)
        self.gamma = gamma
        self.vocab_size = vocab_size

    @property
    def target_layer_ids(self) -> tuple[int, ...]:
        """No target features are read."""
        return ()

    @property
    def has_confidence_head(self) -> bool:
        """There is no head; confidence comes from a proxy."""
        return False

    def encode(self, tokens: Tensor, features: Tensor) -> "CausalLMContext":  # noqa: ARG002 - the interface
        """Read sequences: keys and values of every token but the last (tokens: int64 [S, T]).

        Raises:
            CollectionError: If the text is longer than the draft model's positions.
        """
        context = CausalLMContext(self, tokens, DynamicCache())
        context.read_pending()
        return context

    @torch.no_grad()
    def forward(self, tokens: Tensor, positions: Tensor, mask: Any, cache: Cache) -> Tensor:
        """Return logits of the last token of each row, or of every token under a mask.

        Args:
            tokens: int64 [S, n].
            positions: RoPE or learned positions, int64 [S, n].
            mask: None for plain causal attention; else what `tree_masks` returns.
            cache: Keys and values before these tokens; grows.

        Returns:
            [S, 1, V_draft] without a mask, [S, n, V_draft] with one.
        """
        arguments: dict[str, Any] = {self._cache_argument: cache, "logits_to_keep": 1 if mask is None else 0}
        output = self._model(input_ids=tokens, position_ids=positions, attention_mask=mask, use_cache=True, **arguments)
        logits: Tensor = output.logits
        return logits

    def check_length(self, tokens: int) -> None:
        """Refuse a text longer than the draft model's positions.

        Raises:
            CollectionError: Naming both lengths.
        """
        if self._positions is not None and tokens > self._positions:
            raise CollectionError(
                f"a text of {tokens} tokens is longer than the {self._positions} positions of the draft model "
                f"{self._config.name_or_path or type(self._model).__name__}: lower --max-new-tokens, leave out the "
                "longest prompts, or take another draft model"
            )

    def clamp_positions(self, positions: Tensor) -> Tensor:
        """Keep drafts past the model's last position on it: no response reaches there, so nothing is judged."""
        return positions if self._positions is None else positions.clamp(max=self._positions - 1)

    def tree_masks(self, anchors: Tensor, length: int, steps: int) -> Any:
        """Return the mask of one more step of every block, per kind of attention layer where kinds differ.

        Args:
            anchors: t, int64 [S, A].
            length: Shared context positions, T.
            steps: Steps done, this one included, k+1; chain entry (j, b) stands at T + j·A + b.

        Returns:
            bool [S, 1, A, T + A·steps], True where attention may look; a dict of them by layer type where the
            model has several types.
        """
        kinds = set(getattr(self._config, "layer_types", None) or ())
        window = getattr(self._config, "sliding_window", None)
        if not kinds:
            return _tree_mask(anchors, length, steps, window)
        if kinds == {"full_attention"}:
            return _tree_mask(anchors, length, steps, None)
        return {
            kind: _tree_mask(anchors, length, steps, window if kind == "sliding_attention" else None) for kind in kinds
        }

    def fit_vocabulary(self, logits: Tensor) -> Tensor:
        """Cut or pad draft logits [..., V_draft] to the target's vocabulary (padded embeddings differ in size)."""
        missing = self.vocab_size - logits.shape[-1]
        if missing <= 0:
            return logits[..., : self.vocab_size]
        return torch.nn.functional.pad(wide_enough(logits), (0, missing), value=IMPOSSIBLE_LOGIT)


def _tree_mask(anchors: Tensor, length: int, steps: int, window: int | None) -> Tensor:
    blocks = anchors.shape[1]
    here = torch.arange(length, device=anchors.device)
    seen = here < anchors[..., None]
    if window is not None:
        # the query stands at t + steps - 1 and a window of W tokens ends at itself
        seen &= here > anchors[..., None] + (steps - 1) - window
    own = torch.eye(blocks, dtype=torch.bool, device=anchors.device).repeat(1, steps)
    if window is not None and steps > window:
        own[:, : (steps - window) * blocks] = False
    own = own.expand(anchors.shape[0], blocks, blocks * steps)
    return torch.cat((seen, own), dim=2)[:, None]


class _ChainLayer(DynamicLayer):  # type: ignore[no-untyped-call] # its base hooks subclassing
    """Keys and values of the chains of some blocks, in front of which the shared context is shown."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._context = (keys, values)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append one step and return context and chains; the joint copy lives for one layer only."""
        keys, values = super().update(key_states, value_states, *args, **kwargs)
        return torch.cat((self._context[0], keys), dim=-2), torch.cat((self._context[1], values), dim=-2)

    def get_seq_length(self) -> int:
        """Return context and chain entries."""
        return int(self._context[0].shape[-2]) + int(super().get_seq_length())


def _keys_and_values(cache: DynamicCache) -> list[tuple[Tensor, Tensor]]:
    layers: list[Any] = cache.layers
    return [(layer.keys, layer.values) for layer in layers]


class CausalLMContext:
    """Sequences read so far; see `DraftContext`. The last token waits: it is the first step of a block."""

    def __init__(self, drafter: CausalLMDrafter, tokens: Tensor, cache: DynamicCache) -> None:
        self._drafter = drafter
        self._tokens = tokens
        self._cache = cache

    def read_pending(self) -> None:
        """Run the model over all tokens but the last that the cache does not hold yet."""
        start, stop = self._cache.get_seq_length(), self._tokens.shape[1] - 1
        self._drafter.check_length(stop + 1)
        if start < stop:
            positions = torch.arange(start, stop, device=self._tokens.device).expand(self._tokens.shape[0], -1)
            self._drafter.forward(self._tokens[:, start:stop], positions, None, self._cache)

    def draft(self, anchors: Tensor) -> "CausalLMBlock":
        """Open the blocks of these anchors [S, A]."""
        return CausalLMBlock(self._drafter, self._cache, anchors)

    def append(self, tokens: Tensor, features: Tensor) -> None:  # noqa: ARG002 - the interface
        """Read more tokens [S, n]."""
        self._tokens = torch.cat((self._tokens, tokens), dim=1)
        self.read_pending()

    def take(self, rows: Tensor) -> "CausalLMContext":
        """Return the context of these sequences."""
        cache = DynamicCache()
        for index, (keys, values) in enumerate(_keys_and_values(self._cache)):
            cache.update(keys[rows], values[rows], index)
        return CausalLMContext(self._drafter, self._tokens[rows], cache)


@dataclass(frozen=True, slots=True)
class _Part:
    """Some anchors of every sequence [S, A'] and the keys and values of their chains."""

    anchors: Tensor
    chains: Cache


class CausalLMBlock:
    """The chains of every anchor, one step at a time; see `DraftBlock`."""

    def __init__(self, drafter: CausalLMDrafter, cache: DynamicCache, anchors: Tensor) -> None:
        self._drafter = drafter
        self._length = cache.get_seq_length()
        size = max(16, self._length // drafter.gamma)
        self._parts = [
            _Part(part, Cache(layers=[_ChainLayer(*pair) for pair in _keys_and_values(cache)]))
            for part in torch.split(anchors, size, dim=1)
        ]

    def step(self, slot: int, previous_tokens: Tensor) -> DraftStep:
        """Feed one token a block, int64 [S, A], and return the logits after it."""
        widths = [part.anchors.shape[1] for part in self._parts]
        pieces = zip(self._parts, torch.split(previous_tokens, widths, dim=1), strict=True)
        logits = [self._step_part(part, slot, tokens) for part, tokens in pieces]
        return DraftStep(logits=torch.cat(logits, dim=1), confidence_logits=None)

    def _step_part(self, part: _Part, slot: int, tokens: Tensor) -> Tensor:
        mask = self._drafter.tree_masks(part.anchors, self._length, slot + 1)
        positions = self._drafter.clamp_positions(part.anchors + slot)
        logits = self._drafter.forward(tokens, positions, mask, part.chains)
        return self._drafter.fit_vocabulary(logits)


def check_tree_steps(drafter: CausalLMDrafter, name: str) -> None:
    """Refuse a model (in float32) whose tree steps differ from plain forwards over the same tokens.

    Two blocks of up to three tokens over a text of eight; an architecture that ignores the mask or the
    positions, or keeps a state other than keys and values, shows here.

    Raises:
        UnsupportedModel: Naming the model.
    """
    config = drafter._config  # noqa: SLF001 - same module
    strange = set(getattr(config, "layer_types", None) or ()) - _ATTENDING_LAYERS
    if strange:
        raise UnsupportedModel(
            f"{name}, layer_types holds {sorted(strange)}: a draft model needs plain attention layers"
        )
    device = drafter._model.device  # noqa: SLF001
    text = torch.arange(3, 11, device=device)[None] % config.vocab_size
    chains = torch.tensor([[5, 7, 6], [4, 9, 8]], device=device) % config.vocab_size
    anchors = torch.tensor([[3, 6]], device=device)
    block = drafter.encode(text, text.new_zeros(0)).draft(anchors)
    for slot in range(min(3, drafter.gamma)):
        by_tree = block.step(slot, chains[None, :, slot]).logits[0].float()
        for row, anchor in enumerate(anchors[0].tolist()):
            plain = torch.cat((text[0, :anchor], chains[row, : slot + 1]))[None]
            positions = torch.arange(plain.shape[1], device=device)[None]
            expected = drafter.fit_vocabulary(drafter.forward(plain, positions, None, DynamicCache()))[0, 0].float()
            known = expected > IMPOSSIBLE_LOGIT
            gap = (by_tree[row] - expected)[known].abs().max() / (expected[known].std() + 1e-6)
            if not bool(gap < CHECK_TOLERANCE):
                raise UnsupportedModel(
                    f"{name} ({type(drafter._model).__name__}): drafting many blocks at once gives other logits "  # noqa: SLF001
                    f"than decoding (by {gap:.3g} of their spread); this architecture cannot be a draft model here"
                )
