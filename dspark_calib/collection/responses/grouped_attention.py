"""Attention of one new token a sequence, without copying the keys that query heads share.

transformers repeats keys and values for every query head of a group before it calls torch; at one token a
step that copy is most of the traffic. Here the query heads of a group stand as queries of their one key head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from dspark_calib.collection.responses.key_value_cache import every_layer_sees_everything

_NAME = "dspark_calib_grouped"


def attend_grouped(
    module: Any,  # noqa: ARG001 - transformers' signature
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend from one position.

    Args:
        module: The attention layer.
        query: [rows, query heads, 1, D]; heads of one group are neighbours.
        key: [rows, key heads, n, D].
        value: [rows, key heads, n, D'].
        attention_mask: bool [rows, 1, 1, n].
        scaling: Of the scores; None is 1/√D.

    Returns:
        [rows, 1, query heads, D'], and no weights.
    """
    rows, heads, _one, _size = query.shape
    groups = query.reshape(rows, key.shape[1], heads // key.shape[1], -1)
    attended = scaled_dot_product_attention(groups, key, value, attn_mask=attention_mask, scale=scaling)
    return attended.reshape(rows, 1, heads, -1), None


AttentionInterface.register(_NAME, attend_grouped)


def takes_one_mask(model: Any) -> bool:
    """Return whether every layer attends through torch's scaled dot product and sees all that came before.

    Then one bool mask [rows, 1, 1, n] serves all layers; other models make their masks themselves.
    """
    implementation = model.config.get_text_config()._attn_implementation  # noqa: SLF001 - what its layers read
    return implementation == "sdpa" and every_layer_sees_everything(model)


@contextmanager
def grouped_attention(model: Any) -> Iterator[None]:
    """Let a model that takes one mask attend by `attend_grouped` meanwhile: forwards of one token a sequence only."""
    if not takes_one_mask(model):
        yield
        return
    config = model.config.get_text_config()
    config._attn_implementation = _NAME  # noqa: SLF001
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"  # noqa: SLF001
