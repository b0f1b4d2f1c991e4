"""Loading a causal language model as drafter: files, tokenizer, and the check that it can draft in a tree."""

from pathlib import Path
from typing import Any

import torch

from dspark_calib.drafters.causal_lm import CausalLMDrafter, check_tree_steps
from dspark_calib.drafters.pretrained import readable_failures, refuse_missing_weights, without_progress_bars
from dspark_calib.drafters.target_parts import TargetParts
from dspark_calib.errors import CheckpointError

DEFAULT_GAMMA = 5
_PROBE = "def f(x):\n    return x ** 2  # \u00dcber 1234567, \u6f22\u5b57 \U0001f642\n\n\t<b>it's</b>  don\u2019t"


def load_causal_lm(
    folder: Path, name: str, target: TargetParts, target_tokenizer: Any, *, gamma: int, trust_remote_code: bool
) -> CausalLMDrafter:
    """Load a transformers causal LM that drafts for a target, on the target's device and in its dtype.

    Args:
        folder: Where its files are.
        name: As the user gave it, for messages.
        target: See `target_parts`.
        target_tokenizer: The draft model's must be the same.
        gamma: Draft positions of a block, γ.
        trust_remote_code: Whether code that lies with the model may run.

    Raises:
        CheckpointError: If files are missing or damaged, or the tokenizers differ.
        UnsupportedModel: If transformers cannot run it without its own code, or it cannot draft in a tree.
    """
    from transformers import AutoTokenizer

    with readable_failures(name):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    check_same_tokenizer(tokenizer, target_tokenizer, name, target.name)
    model = _load_model(folder, name, torch.float32, trust_remote_code=trust_remote_code)
    drafter = CausalLMDrafter(model, gamma=gamma, vocab_size=target.vocab_size)
    check_tree_steps(drafter, name)
    if target.dtype != torch.float32:
        # Half precision is too noisy for the check. Read again rather than cast: a cast would round RoPE's buffers too.
        del drafter, model
        model = _load_model(folder, name, target.dtype, trust_remote_code=trust_remote_code)
    return CausalLMDrafter(model.to(target.device), gamma=gamma, vocab_size=target.vocab_size)


def _load_model(folder: Path, name: str, dtype: torch.dtype, *, trust_remote_code: bool) -> Any:
    from transformers import AutoModelForCausalLM

    with readable_failures(name), without_progress_bars():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation="sdpa",
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    model, loading = loaded
    refuse_missing_weights(name, loading)
    return model.eval()


def check_same_tokenizer(draft: Any, target: Any, draft_name: str, target_name: str) -> None:
    """Refuse a draft model that does not cut text into the target's tokens.

    Every id both know must be the same token, and a probe text must give the same ids. Ids that only one of
    them knows (padding, added tokens) are no obstacle: they are never drafted, or never accepted.

    Raises:
        CheckpointError: Naming the first token that differs.
    """
    ours, theirs = ({i: token for token, i in t.get_vocab().items()} for t in (draft, target))
    for i in sorted(ours.keys() & theirs.keys()):
        if ours[i] != theirs[i]:
            raise CheckpointError(
                f"{draft_name}, tokenizer: token {i} is {ours[i]!r}, but {theirs[i]!r} in {target_name}; a draft "
                "model needs the target's tokenizer: choose one of the target's family"
            )
    if draft(_PROBE, add_special_tokens=False)["input_ids"] != target(_PROBE, add_special_tokens=False)["input_ids"]:
        raise CheckpointError(
            f"{draft_name}, tokenizer: has the tokens of {target_name} but cuts text differently; a draft model "
            "needs the target's tokenizer: choose one of the target's family"
        )
