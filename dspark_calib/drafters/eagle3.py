"""Eagle3: one decoder layer that drafts in a chain, run for every anchor at once.

Entry i pairs the target's feature at position i with the token at i+1; the layer reads all entries in one
causal pass. A block at anchor t starts from the layer's output at entry t-1 and feeds its own output and
draft back, γ-1 times, over all anchors together: each chain step sees entries 0 … t-1 and the steps before
it of its own anchor. Chain keys and values come from the drafter's own states, never from the target's.

DeepSpec stops a block after a drafted stop token, accepted or not; those slots have `drafted` False.
There is no confidence head. Source: Eagle3 (arXiv 2503.01840) as DeepSpec's `Qwen3Eagle3Model` and
`Gemma4Eagle3Model` run it. The layer is in `eagle3_layers`, reading weights in `eagle3_weights`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention

from dspark_calib.drafters.attention import anchors_per_part, block_attention, block_bias
from dspark_calib.drafters.drafter import DraftStep
from dspark_calib.drafters.eagle3_layers import Eagle3Layer
from dspark_calib.drafters.gemma4_backbone import cap_logits, scaled_embedding
from dspark_calib.drafters.rotary import rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Drafter:
    """A loaded Eagle3 drafter; see `Drafter` for the members.

    Attributes:
        gamma: γ (ttt_length).
        vocab_size: V.
        target_layer_ids: Target layers whose output is a feature.
        layer: The decoder layer.
        fuse: fc.weight [H, F].
        norm: [H].
        eps: Of the final norm.
        embed_tokens, lm_head: [V, H].
        scale_embeddings: Whether embeddings are multiplied by √H (Gemma4).
        softcap: Bound of the logits, or None.
        inverse_frequencies: RoPE, float32 [d/2].
        rope_scale: Factor on cosine and sine.
        stop_tokens: Tokens after which a block ends.
    """

    gamma: int
    vocab_size: int
    target_layer_ids: tuple[int, ...]
    layer: Eagle3Layer
    fuse: Tensor
    norm: Tensor
    eps: float
    embed_tokens: Tensor
    lm_head: Tensor
    scale_embeddings: bool
    softcap: float | None
    inverse_frequencies: Tensor
    rope_scale: float
    stop_tokens: tuple[int, ...]

    @property
    def has_confidence_head(self) -> bool:
        """Eagle3 has none."""
        return False

    def encode(self, tokens: Tensor, features: Tensor) -> "Eagle3Context":
        """Read entries 0 … T-2 in one causal pass (tokens [S, T], features [S, T-1, F])."""
        return Eagle3Context(self, read_entries(self, tokens[:, 1:], features, None))

    def embed(self, tokens: Tensor) -> Tensor:
        """Return input embeddings [..., H]."""
        if self.scale_embeddings:
            return scaled_embedding(tokens, self.embed_tokens)
        return embedding(tokens, self.embed_tokens)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return lm_head(norm(g)) [..., V], capped where the target's are."""
        return cap_logits(linear(rms_norm(hidden, self.norm.shape, self.norm, self.eps), self.lm_head), self.softcap)

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return RoPE cosine and sine of positions [...]."""
        return rotation(positions, self.inverse_frequencies, self.embed_tokens.dtype, self.rope_scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """What the layer keeps of the entries it has read.

    Attributes:
        keys, values: [S, KV heads, E, d].
        outputs: Layer outputs g [S, E, H].
    """

    keys: Tensor
    values: Tensor
    outputs: Tensor

    @property
    def count(self) -> int:
        """Entries of a sequence, E."""
        return int(self.outputs.shape[1])


def read_entries(drafter: Eagle3Drafter, tokens: Tensor, features: Tensor, before: Entries | None) -> Entries:
    """Run the layer causally over n more entries.

    Args:
        drafter: Weights.
        tokens: The token *after* each feature's position, int64 [S, n].
        features: Target features, [S, n, F].
        before: Entries read so far.
    """
    start = before.count if before else 0
    hidden = linear(features, drafter.fuse)
    positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
    queries, *fresh = drafter.layer.project(drafter.embed(tokens), hidden, drafter.angles(positions))
    keys, values = (x.transpose(1, 2) for x in fresh)
    if before:
        keys, values = torch.cat((before.keys, keys), dim=2), torch.cat((before.values, values), dim=2)
    mixed = _attend_causally(queries, keys, values, drafter.layer.attention_scale)
    outputs = drafter.layer.finish(hidden, mixed)
    if before:
        outputs = torch.cat((before.outputs, outputs), dim=1)
    return Entries(keys=keys.contiguous(), values=values.contiguous(), outputs=outputs)


def _attend_causally(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Attend from the last n entries [S, n, heads, d] to all up to themselves; returns [S, n, heads · d]."""
    n, total = queries.shape[1], keys.shape[2]
    group = queries.shape[2] // keys.shape[1]
    mask = None
    if n < total:
        mask = torch.ones(n, total, dtype=torch.bool, device=queries.device).tril(total - n)
    mixed = scaled_dot_product_attention(
        queries.transpose(1, 2),
        keys.repeat_interleave(group, dim=1),
        values.repeat_interleave(group, dim=1),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
    )
    return mixed.transpose(1, 2).flatten(2)


class Eagle3Context:
    """Sequences read so far; see `DraftContext`."""

    def __init__(self, drafter: Eagle3Drafter, entries: Entries) -> None:
        self._drafter = drafter
        self._entries = entries

    def draft(self, anchors: Tensor) -> "Eagle3Block":
        """Open the blocks of these anchors [S, A]."""
        return Eagle3Block(self._drafter, self._entries, anchors)

    def append(self, tokens: Tensor, features: Tensor) -> None:
        """Read more tokens [S, n] and the features [S, n, F] of the positions before them."""
        self._entries = read_entries(self._drafter, tokens, features, self._entries)

    def take(self, rows: Tensor) -> "Eagle3Context":
        """Return the context of these sequences."""
        entries = self._entries
        taken = Entries(keys=entries.keys[rows], values=entries.values[rows], outputs=entries.outputs[rows])
        return Eagle3Context(self._drafter, taken)


class Eagle3Block:
    """The chains of every anchor, one step at a time; see `DraftBlock`."""

    def __init__(self, drafter: Eagle3Drafter, entries: Entries, anchors: Tensor) -> None:
        self._drafter = drafter
        self._entries = entries
        self._anchors = anchors
        index = (anchors - 1)[..., None].expand(*anchors.shape, entries.outputs.shape[-1])
        self._hidden = entries.outputs.gather(1, index)
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._open = torch.ones_like(anchors, dtype=torch.bool)
        self._stop = torch.tensor(drafter.stop_tokens, dtype=torch.long, device=anchors.device)

    def step(self, slot: int, previous_tokens: Tensor) -> DraftStep:
        """Return the logits of one slot, after feeding the draft before it (int64 [S, A]) from slot 1 on."""
        if slot > 0:
            self._open = self._open & ~torch.isin(previous_tokens, self._stop)
            self._hidden = self._chain(previous_tokens, self._anchors + (slot - 1))
        return DraftStep(logits=self._drafter.logits(self._hidden), confidence_logits=None, drafted=self._open)

    def _chain(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the layer's output for one more chain step of every anchor, [S, A, H]."""
        layer = self._drafter.layer
        angles = self._drafter.angles(positions)
        queries, keys, values = layer.project(self._drafter.embed(tokens), self._hidden, angles)
        self._keys.append(keys)
        self._values.append(values)
        own = (torch.stack(self._keys, dim=2), torch.stack(self._values, dim=2))
        return layer.finish(self._hidden, self._attend(queries[:, :, None], own))

    def _attend(self, queries: Tensor, own: tuple[Tensor, Tensor]) -> Tensor:
        """Attend to entries before each anchor and to its own chain, in parts that bound the scores."""
        entries, scale = self._entries, self._drafter.layer.attention_scale
        part = anchors_per_part(queries.shape[0], own[0].shape[2], queries.shape[3], entries.count)
        pieces = zip(*(torch.split(x, part, dim=1) for x in (queries, *own, self._anchors)), strict=True)
        mixed = [
            block_attention(
                q,
                (k, v),
                (entries.keys, entries.values),
                block_bias(None, anchors, entries.count, 1, 1, q.dtype),
                scale,
            )
            for q, k, v, anchors in pieces
        ]
        return torch.cat(mixed, dim=1)[:, :, 0]
