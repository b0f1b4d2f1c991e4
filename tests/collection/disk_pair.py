"""A random target and a random DSpark drafter as folders on disk, with a byte tokenizer."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
STOP, VOCAB = len(BYTES), len(BYTES) + 4
H, D, RANK, GAMMA = 16, 8, 4, 3
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'][0] }}:{{ m['content'] }}\n{% endfor %}a:"


def save_target(folder: Path, seed: int = 0, *, longest: int = 256) -> Path:
    """Save a two-layer target whose distributions are neither flat nor peaked."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=H, intermediate_size=24, num_hidden_layers=3, num_attention_heads=2,
        num_key_value_heads=1, head_dim=D, max_position_embeddings=longest, tie_word_embeddings=False,
        eos_token_id=STOP, bos_token_id=None, pad_token_id=None, initializer_range=0.4,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, a stop token, three spare ones."""
    raw = Tokenizer(models.BPE(vocab={b: i for i, b in enumerate(BYTES)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<stop>")  # noqa: S106 - no password
    made.add_tokens(["<x>", "<y>", "<mask>"], special_tokens=True)
    made.chat_template = CHAT_TEMPLATE
    return made


def save_drafter(folder: Path, seed: int = 1, *, head: bool = True, **changes: object) -> Path:
    """Save a one-layer DSpark drafter in DeepSpec's layout; `changes` overwrite fields of its config."""
    generator = torch.Generator().manual_seed(seed)

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 1.5 / shape[-1] ** 0.5

    config = {
        "architectures": ["Qwen3DSparkModel"], "model_type": "qwen3", "hidden_size": H, "head_dim": D,
        "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24, "num_hidden_layers": 1,
        "num_target_layers": 3, "vocab_size": VOCAB, "block_size": GAMMA, "mask_token_id": VOCAB - 1,
        "target_layer_ids": [0, 1], "markov_rank": RANK, "markov_head_type": "vanilla", "rms_norm_eps": 1e-6,
        "enable_confidence_head": head, "attention_bias": False, "hidden_act": "silu",
        "layer_types": ["full_attention"], "sliding_window": None, "tie_word_embeddings": False,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "max_position_embeddings": 256,
    }  # fmt: skip
    tensors = {
        "fc.weight": make(H, 2 * H), "hidden_norm.weight": torch.ones(H), "norm.weight": torch.ones(H),
        "markov_head.markov_w1.weight": make(VOCAB, RANK), "markov_head.markov_w2.weight": make(VOCAB, RANK),
    }  # fmt: skip
    layer = {
        "self_attn.q_proj": (2 * D, H), "self_attn.k_proj": (D, H), "self_attn.v_proj": (D, H),
        "self_attn.o_proj": (H, 2 * D), "mlp.gate_proj": (24, H), "mlp.up_proj": (24, H), "mlp.down_proj": (H, 24),
    }  # fmt: skip
    tensors |= {f"layers.0.{name}.weight": make(*shape) for name, shape in layer.items()}
    for name, size in {"self_attn.q_norm": D, "self_attn.k_norm": D, "input_layernorm": H,
                       "post_attention_layernorm": H}.items():  # fmt: skip
        tensors[f"layers.0.{name}.weight"] = torch.ones(size)
    if head:
        config["confidence_head_with_markov"] = True
        tensors |= {"confidence_head.proj.weight": make(1, H + RANK), "confidence_head.proj.bias": torch.zeros(1)}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config | changes))
    save_file(tensors, folder / "model.safetensors")
    return folder


def write_prompts(path: Path, count: int) -> Path:
    """Write prompts of different lengths."""
    lines = [{"id": f"p{i}", "prompt": "ab"[i % 2] * (i % 7 + 1) + "?"} for i in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
