"""A key-value cache with its memory laid out beforehand, so that no step copies what earlier steps wrote."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from dspark_calib.errors import UnsupportedModel


class PreallocatedLayer(DynamicLayer):  # type: ignore[no-untyped-call]
    """One layer's keys and values, [rows, heads, capacity, head size]; forwards see the first part as a view.

    A sliding-window model works with it too: it masks what lies outside its window.

    Attributes:
        length: Tokens held.
        slot: Where the next token goes, int64 [1], on the device, so that a captured step moves on by itself;
            None while prompts are read, then new tokens go behind the others.
        width: Tokens a forward sees once `slot` is set.
    """

    keys: Any
    values: Any

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.capacity = capacity
        self.length = 0
        self.slot: Tensor | None = None
        self.width = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate as the first keys and values are shaped."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states.new_zeros((*key_states.shape[:2], self.capacity, key_states.shape[-1]))
        self.values = value_states.new_zeros((*value_states.shape[:2], self.capacity, value_states.shape[-1]))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write new keys and values and return what the forward may see."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if self.slot is not None:
            self.keys.index_copy_(2, self.slot, key_states)
            self.values.index_copy_(2, self.slot, value_states)
            return self.keys[:, :, : self.width], self.values[:, :, : self.width]
        start, self.length = self.length, self.length + key_states.shape[-2]
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_seq_length(self, *_: Any) -> int:
        """Return the tokens held."""
        return self.length

    def keep_rows(self, rows: Tensor) -> None:
        """Keep these sequences only."""
        self.keys, self.values = self.keys[rows], self.values[rows]


def check_cacheable(model: Any) -> None:
    """Refuse a model whose memory of the past is no key-value cache.

    Raises:
        UnsupportedModel: For recurrent and state-space layers.
    """
    layers = DynamicCache(config=model.config).layers
    foreign = {type(layer).__name__ for layer in layers if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer)}
    if foreign:
        raise UnsupportedModel(
            f"{type(model).__name__}: its own generation cannot be run here ({', '.join(sorted(foreign))}); "
            "give its responses with --responses or --responses-from"
        )


def every_layer_sees_everything(model: Any) -> bool:
    """Return whether no layer of the model has a window, so that one mask serves all."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


def preallocated_cache(model: Any, capacity: int) -> Any:
    """Return an empty cache for `capacity` tokens a sequence."""
    layers = model.config.get_text_config().num_hidden_layers
    return Cache(layers=[PreallocatedLayer(capacity) for _ in range(layers)])


def joined_cache(model: Any, parts: list[Any], filled: int, capacity: int) -> Any:
    """Join caches of different sequences into one, each aligned to end at token `filled`; the parts are emptied.

    Args:
        model: Whose caches they are.
        parts: At most `filled` tokens each.
        filled: Tokens a sequence, padding on the left included.
        capacity: Tokens a sequence the joined cache has room for.
    """
    joined = preallocated_cache(model, capacity)
    for index, layer in enumerate(joined.layers):
        pieces = [part.layers[index] for part in parts]
        rows = sum(piece.keys.shape[0] for piece in pieces)
        layer.lazy_initialization(_widened(pieces[0].keys, rows), _widened(pieces[0].values, rows))
        row = 0
        for piece in pieces:
            below = slice(row, row + piece.keys.shape[0])
            layer.keys[below, :, filled - piece.length : filled] = piece.keys[:, :, : piece.length]
            layer.values[below, :, filled - piece.length : filled] = piece.values[:, :, : piece.length]
            row += piece.keys.shape[0]
            piece.keys = piece.values = torch.empty(0)
        layer.length = filled
    return joined


def _widened(states: Tensor, rows: int) -> Tensor:
    """Return a tensor shaped like these states with another number of sequences, costing no memory."""
    return states[:1, :, :1].expand(rows, -1, -1, -1)
