"""A tiny target and one tiny drafter of every family, each with an independent q to enumerate with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from literal_models import LiteralModel, Visible, Weights, random_weights
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from dspark_calib.drafters.causal_lm import CausalLMDrafter
from dspark_calib.drafters.checkpoint import DrafterCheckpoint
from dspark_calib.drafters.drafter import Drafter
from dspark_calib.drafters.eagle3_weights import build_gemma4_eagle3, build_qwen3_eagle3
from dspark_calib.drafters.gemma4_weights import build_gemma4_dspark
from dspark_calib.drafters.ngram import NgramDrafter
from dspark_calib.drafters.speculators import build_speculators
from dspark_calib.drafters.target_parts import target_parts
from dspark_calib.drafters.zlab import build_zlab_dflash

V, H, LAYERS, GAMMA, STOP, MASK = 5, 12, 7, 2, 4, 0
PROMPT = (1, 2, 1, 0, 1)
KEPT = (0, 1, 3)  # ids of the pruned draft vocabulary
DraftLaw = Callable[[Sequence[int], Sequence[int]], list[float] | None]

_SIZES: dict[str, Any] = {
    "hidden_size": H, "vocab_size": V, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "intermediate_size": 10, "rms_norm_eps": 1e-6, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0},
}  # fmt: skip
_GEMMA: dict[str, Any] = _SIZES | {
    "global_head_dim": 8, "num_global_key_value_heads": 1, "attention_k_eq_v": True, "final_logit_softcapping": 4.0,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 50.0, "partial_rotary_factor": 0.5}
    },
}  # fmt: skip
_EAGLE: dict[str, Any] = {
    "num_hidden_layers": 1, "target_layer_ids": [0, 1, 2, 3, 5], "num_target_layers": LAYERS, "ttt_length": GAMMA,
}  # fmt: skip
_BLOCK: dict[str, Any] = {
    "num_hidden_layers": 1, "target_layer_ids": [-1, 2, 5], "num_target_layers": LAYERS, "mask_token_id": MASK,
    "markov_rank": 0, "enable_confidence_head": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyPair:
    """A target with a drafter.

    Attributes:
        model: The target.
        drafter: The drafter under test.
        law: q of the next draft given text up to the anchor and the drafts so far; None where the block ended.
    """

    model: Any
    drafter: Drafter
    law: DraftLaw


def tiny_target() -> Any:
    """A random Llama over five tokens."""
    torch.manual_seed(1)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=V, hidden_size=H, intermediate_size=16, num_hidden_layers=LAYERS, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, eos_token_id=STOP, tie_word_embeddings=False,
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.25)
    return model


def features_of(model: Any, text: Sequence[int], layers: Sequence[int]) -> torch.Tensor:
    """Target features [T, F] from transformers' own hidden states."""
    with torch.no_grad():
        states = model(torch.tensor([list(text)]), output_hidden_states=True).hidden_states
    return torch.cat([states[layer + 1][0] for layer in layers], dim=-1)


def _checkpoint(config: dict[str, Any], weights: Weights) -> DrafterCheckpoint:
    return DrafterCheckpoint(
        name="tiny", folder=Path("tiny"), config=config, tensors=weights, content_hash="0",
        device=torch.device("cpu"), dtype=torch.float32,
    )  # fmt: skip


def _literal(weights: Weights, *, gemma: bool) -> LiteralModel:
    if gemma:
        return LiteralModel(weights, gemma=True, head_dim=8, theta=50.0, rotated=0.5, cap=4.0)
    return LiteralModel(weights, gemma=False, head_dim=4, theta=50.0)


def eagle3_pair(model: Any, *, gemma: bool) -> TinyPair:
    """DeepSpec's Eagle3; a block ends after a drafted stop token."""
    config = (_GEMMA if gemma else _SIZES) | _EAGLE
    weights = random_weights(5, config, gemma=gemma, eagle=True, vocab=V)
    literal = _literal(weights, gemma=gemma)
    drafter = (build_gemma4_eagle3 if gemma else build_qwen3_eagle3)(
        _checkpoint(config, weights), target_parts(model, "tiny")
    )

    def law(text: Sequence[int], drafts: Sequence[int]) -> list[float] | None:
        if STOP in drafts:
            return None
        features = features_of(model, text, config["target_layer_ids"])
        logits = literal.chain_logits(list(text), features, len(text) - 1, list(drafts))[-1]
        return torch.softmax(logits, -1).tolist()

    return TinyPair(model=model, drafter=drafter, law=law)


def _block_law(model: Any, literal: LiteralModel, slots: int, skip: int, kept: Sequence[int] | None = None) -> DraftLaw:
    def law(text: Sequence[int], drafts: Sequence[int]) -> list[float] | None:
        everything: Visible = lambda *_: True  # noqa: E731
        features = features_of(model, text, _BLOCK["target_layer_ids"])
        inputs = [text[-1]] + [MASK] * (slots - 1)
        state = literal.block_states(features, len(text) - 1, inputs, [everything])[skip + len(drafts)]
        q = torch.softmax(literal.logits(state), -1)
        if kept is None:
            return q.tolist()
        spread = torch.zeros(V)
        spread[list(kept)] = q
        return spread.tolist()

    return law


def gemma4_pair(model: Any) -> TinyPair:
    """A DFlash (no heads) over the Gemma4 backbone."""
    config = _GEMMA | _BLOCK | {"block_size": GAMMA}
    weights = random_weights(6, config, gemma=True, eagle=False, vocab=V)
    drafter = build_gemma4_dspark(_checkpoint(config, weights), target_parts(model, "tiny"))
    return TinyPair(model=model, drafter=drafter, law=_block_law(model, _literal(weights, gemma=True), GAMMA, 0))


def zlab_pair(model: Any) -> TinyPair:
    """z-lab's DFlash: one slot more than drafts, the target's embeddings and head."""
    options = {"mask_token_id": MASK, "target_layer_ids": _BLOCK["target_layer_ids"]}
    config = _SIZES | _BLOCK | {"block_size": GAMMA + 1, "dflash_config": options}
    weights = random_weights(8, config, gemma=False, eagle=False, vocab=V)
    weights["embed_tokens.weight"] = model.get_input_embeddings().weight.detach()
    weights["lm_head.weight"] = model.get_output_embeddings().weight.detach()
    own = {name: w for name, w in weights.items() if name not in ("embed_tokens.weight", "lm_head.weight")}
    drafter = build_zlab_dflash(_checkpoint(config, own), target_parts(model, "tiny"))
    return TinyPair(model=model, drafter=drafter, law=_block_law(model, _literal(weights, gemma=False), GAMMA + 1, 1))


def speculators_pair(model: Any) -> TinyPair:
    """A speculators export that drafts only three of the five tokens."""
    config = {
        "speculators_model_type": "dspark", "transformer_layer_config": {"model_type": "qwen3", "num_hidden_layers": 1}
        | _SIZES, "draft_vocab_size": len(KEPT), "block_size": GAMMA, "mask_token_id": MASK, "markov_rank": 0,
        "aux_hidden_state_layer_ids": [i + 1 for i in _BLOCK["target_layer_ids"]], "sample_from_anchor": True,
        "enable_confidence_head": False,
    }  # fmt: skip
    weights = random_weights(9, _SIZES | _BLOCK, gemma=False, eagle=False, vocab=V)
    weights["lm_head.weight"] = weights["lm_head.weight"][: len(KEPT)]
    weights["d2t"] = torch.tensor([target - i for i, target in enumerate(KEPT)])
    drafter = build_speculators(_checkpoint(config, weights), target_parts(model, "tiny"))
    law = _block_law(model, _literal(weights, gemma=False), GAMMA, 0, KEPT)
    return TinyPair(model=model, drafter=drafter, law=law)


def causal_lm_pair(model: Any) -> TinyPair:
    """An independent Qwen3 model."""
    torch.manual_seed(2)
    draft = Qwen3ForCausalLM(Qwen3Config(**_SIZES, num_hidden_layers=2, max_position_embeddings=64)).eval()
    with torch.no_grad():
        for weight in draft.parameters():
            weight.add_(torch.randn_like(weight) * 0.25)

    def law(text: Sequence[int], drafts: Sequence[int]) -> list[float]:
        with torch.no_grad():
            return torch.softmax(draft(torch.tensor([[*text, *drafts]])).logits[0, -1], -1).tolist()  # type: ignore[no-any-return]

    return TinyPair(model=model, drafter=CausalLMDrafter(draft, gamma=GAMMA, vocab_size=V), law=law)


def ngram_pair(model: Any) -> TinyPair:
    """Prompt lookup over the last token or two."""

    def law(text: Sequence[int], drafts: Sequence[int]) -> list[float] | None:
        for n in (2, 1):
            ends = [i for i in range(n - 1, len(text) - 1) if tuple(text[i - n + 1 : i + 1]) == tuple(text[-n:])]
            if ends:
                copied = text[ends[0] + 1 :][:GAMMA]
                return [float(v == copied[len(drafts)]) for v in range(V)] if len(drafts) < len(copied) else None
        return None

    return TinyPair(model=model, drafter=NgramDrafter(vocab_size=V, gamma=GAMMA, max_ngram=2), law=law)


FAMILIES: dict[str, Callable[[Any], TinyPair]] = {
    "eagle3 qwen3": lambda model: eagle3_pair(model, gemma=False),
    "eagle3 gemma4": lambda model: eagle3_pair(model, gemma=True),
    "dflash gemma4": gemma4_pair,
    "z-lab dflash": zlab_pair,
    "speculators, pruned": speculators_pair,
    "causal LM": causal_lm_pair,
    "ngram": ngram_pair,
}
