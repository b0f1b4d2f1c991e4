"""Draft models written out literally: one vector at a time, loops instead of masks, every formula spelled.

Oracles for the parallel drafters, written from the description of DeepSpec's layouts and sharing no code
with the library. Weights carry the names of the checkpoints.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Weights = dict[str, Tensor]
Visible = Callable[[int, int, bool], bool]


def rms(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6) -> Tensor:
    """x / √(mean x² + eps), times the weight where there is one."""
    normed = x / math.sqrt(float((x * x).mean()) + eps)
    return normed if weight is None else normed * weight


def rope(x: Tensor, position: int, frequencies: list[float]) -> Tensor:
    """Rotate pair (i, i + d/2) of every head by position · frequency_i."""
    out, half = x.clone(), len(frequencies)
    for i, frequency in enumerate(frequencies):
        c, s = math.cos(position * frequency), math.sin(position * frequency)
        out[:, i] = x[:, i] * c - x[:, i + half] * s
        out[:, i + half] = x[:, i + half] * c + x[:, i] * s
    return out


def attend(query: Tensor, keys: list[Tensor], values: list[Tensor], scale: float) -> Tensor:
    """Softmax attention of one position: query [heads, d], keys and values one [KV heads, d] a position."""
    heads = []
    group = query.shape[0] // keys[0].shape[0]
    for h in range(query.shape[0]):
        scores = torch.stack([query[h] @ key[h // group] * scale for key in keys])
        weights = torch.exp(scores - scores.max())
        weights = weights / weights.sum()
        heads.append(sum(w * value[h // group] for w, value in zip(weights, values, strict=True)))
    return torch.cat(heads)


class LiteralModel:
    """A Qwen3- or Gemma4-shaped drafter by its weights and sizes."""

    def __init__(self, weights: Weights, *, gemma: bool, head_dim: int, theta: float, rotated: float = 1.0,
                 cap: float | None = None) -> None:  # fmt: skip
        self.w = weights
        self.gemma = gemma
        self.head_dim = head_dim
        pairs = int(rotated * head_dim / 2)
        self.frequencies = [theta ** (-2 * i / head_dim) if i < pairs else 0.0 for i in range(head_dim // 2)]
        self.scale = 1.0 if gemma else 1 / math.sqrt(head_dim)
        self.cap = cap

    def embed(self, token: int) -> Tensor:
        """Input embedding, times √H in Gemma."""
        vector = self.w["embed_tokens.weight"][token]
        return vector * math.sqrt(len(vector)) if self.gemma else vector

    def project(self, layer: int, x: Tensor, position: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated query and key, value, of one position."""
        at = f"layers.{layer}.self_attn."

        def part(name: str) -> Tensor:
            bias = self.w.get(f"{at}{name}_proj.bias", 0.0)
            return (self.w[f"{at}{name}_proj.weight"] @ x + bias).view(-1, self.head_dim)

        def normed(vectors: Tensor, weight: Tensor | None) -> Tensor:
            return torch.stack([rms(v, weight) for v in vectors])

        query = rope(normed(part("q"), self.w[at + "q_norm.weight"]), position, self.frequencies)
        key = rope(normed(part("k"), self.w[at + "k_norm.weight"]), position, self.frequencies)
        value = part("v" if at + "v_proj.weight" in self.w else "k")
        return query, key, normed(value, None) if self.gemma else value

    def finish(self, layer: int, residual: Tensor, mixed: Tensor) -> Tensor:
        """Output projection, MLP, residuals and their norms."""
        at = f"layers.{layer}."
        w = self.w
        attended = w[at + "self_attn.o_proj.weight"] @ mixed + w.get(at + "self_attn.o_proj.bias", 0.0)
        if self.gemma:
            x = residual + rms(attended, w[at + "post_attention_layernorm.weight"])
            inner = self.mlp(at, rms(x, w[at + "pre_feedforward_layernorm.weight"]))
            return (x + rms(inner, w[at + "post_feedforward_layernorm.weight"])) * w[at + "layer_scalar"]
        x = residual + attended
        return x + self.mlp(at, rms(x, w[at + "post_attention_layernorm.weight"]))

    def mlp(self, at: str, x: Tensor) -> Tensor:
        """down(act(gate x) · up x); act is SiLU, or the tanh GELU in Gemma."""
        gate, up = self.w[at + "mlp.gate_proj.weight"] @ x, self.w[at + "mlp.up_proj.weight"] @ x
        if self.gemma:
            act = 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
        else:
            act = gate / (1 + torch.exp(-gate))
        return self.w[at + "mlp.down_proj.weight"] @ (act * up)

    def logits(self, state: Tensor) -> Tensor:
        """Vocabulary projection and cap of a normalised state."""
        raw = self.w["lm_head.weight"] @ state
        return raw if self.cap is None else self.cap * torch.tanh(raw / self.cap)

    def block_states(self, features: Tensor, anchor: int, tokens: list[int], visible: list[Visible]) -> list[Tensor]:
        """DSpark's parallel block: h of every slot.

        Args:
            features: [T, F].
            anchor: t.
            tokens: Input token of every slot (anchor token, masks).
            visible: Per layer: (slot, other position or slot, is context) → may the slot see it?
        """
        context = [rms(self.w["fc.weight"] @ features[i], self.w["hidden_norm.weight"]) for i in range(anchor)]
        x = [self.embed(token) for token in tokens]
        for layer, sees in enumerate(visible):
            far = [self.project(layer, c, i)[1:] for i, c in enumerate(context)]
            norm = self.w[f"layers.{layer}.input_layernorm.weight"]
            near = [self.project(layer, rms(v, norm), anchor + s) for s, v in enumerate(x)]
            fresh = []
            for s, residual in enumerate(x):
                seen = [far[i] for i in range(anchor) if sees(s, i, True)]
                seen += [near[o][1:] for o in range(len(x)) if sees(s, o, False)]
                keys, values = [k for k, _ in seen], [v for _, v in seen]
                fresh.append(self.finish(layer, residual, attend(near[s][0], keys, values, self.scale)))
            x = fresh
        return [rms(v, self.w["norm.weight"]) for v in x]

    def chain_logits(self, tokens: list[int], features: Tensor, anchor: int, drafts: list[int]) -> list[Tensor]:
        """Eagle3's chain: logits of draft positions 1 … len(drafts) + 1 after feeding the drafts."""
        keys: list[Tensor] = []
        values: list[Tensor] = []

        def read(hidden: Tensor, token: int, position: int) -> Tensor:
            embedded = rms(self.embed(token), self.w["layers.0.input_layernorm.weight"])
            normed = rms(hidden, self.w["layers.0.hidden_norm.weight"])
            query, key, value = self.project(0, torch.cat((embedded, normed)), position)
            keys.append(key)
            values.append(value)
            return self.finish(0, hidden, attend(query, keys, values, self.scale))

        for i in range(anchor):
            state = read(self.w["fc.weight"] @ features[i], tokens[i + 1], i)
        out = [self.logits(rms(state, self.w["norm.weight"]))]
        for j, draft in enumerate(drafts, start=1):
            state = read(state, draft, anchor + j - 1)
            out.append(self.logits(rms(state, self.w["norm.weight"])))
        return out


def random_weights(seed: int, config: dict[str, object], *, gemma: bool, eagle: bool, vocab: int) -> Weights:
    """Weights of a DeepSpec drafter with these sizes, spread so that no term vanishes."""
    generator = torch.Generator().manual_seed(seed)
    size = {name: value for name, value in config.items() if isinstance(value, int)}
    h, inner, heads = size["hidden_size"], size["intermediate_size"], size["num_attention_heads"]
    d = size["global_head_dim"] if gemma else size["head_dim"]
    shared = bool(config.get("attention_k_eq_v"))
    kv = size["num_global_key_value_heads"] if shared else size["num_key_value_heads"]
    width = 2 * h if eagle else h
    features = len(config["target_layer_ids"]) * h  # type: ignore[arg-type]

    def make(*shape: int, spread: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=generator) * spread / math.sqrt(shape[-1])

    def norm(n: int) -> Tensor:
        return 1 + 0.3 * torch.randn(n, generator=generator)

    w = {"fc.weight": make(h, features), "norm.weight": norm(h), "embed_tokens.weight": make(vocab, h, spread=2.0)}
    w["lm_head.weight"] = make(vocab, h, spread=3.0)
    if not eagle:
        w["hidden_norm.weight"] = norm(h)
    for i in range(size["num_hidden_layers"]):
        at = f"layers.{i}."
        for name, rows in ({"q": heads * d, "k": kv * d} | ({} if shared else {"v": kv * d})).items():
            w[f"{at}self_attn.{name}_proj.weight"] = make(rows, width)
        w[at + "self_attn.o_proj.weight"] = make(h, heads * d)
        w |= {f"{at}self_attn.{x}_norm.weight": norm(d) for x in "qk"}
        w |= {f"{at}mlp.{x}_proj.weight": make(inner, h) for x in ("gate", "up")}
        w[at + "mlp.down_proj.weight"] = make(h, inner)
        norms = ["input_layernorm", "post_attention_layernorm"] + (["hidden_norm"] if eagle else [])
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else []
        w |= {f"{at}{name}.weight": norm(h) for name in norms}
        if gemma:
            w[at + "layer_scalar"] = torch.tensor([0.8])
    return w
