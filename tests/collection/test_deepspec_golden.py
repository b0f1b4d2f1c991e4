"""Rounds recorded by DeepSpec's own evaluator (bfloat16, one GPU, greedy), replayed in float32 on the CPU.

`tests/data/deepspec-golden` holds the token ids DeepSpec decoded with the demo pair, and every round it
recorded. The models differ in precision only, so ties fall differently now and then.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from dspark_calib.collection.target_states import TargetForward
from dspark_calib.drafters.drafter import Drafter
from dspark_calib.drafters.loading import load_drafter
from dspark_calib.drafters.target_parts import target_parts

GOLDEN = Path(__file__).resolve().parent.parent / "data" / "deepspec-golden"
Arrays = tuple[np.ndarray, np.ndarray]


@torch.inference_mode()
def replay(record: dict[str, Any], anchors: list[int], target: TargetForward, drafter: Drafter) -> Arrays:
    """Greedy drafts and confidence logits at these anchors of a recorded response, each [rounds, γ]."""
    tokens, at = torch.tensor([record["token_ids"]]), torch.tensor([anchors])
    block = drafter.encode(tokens, target.run(tokens[:, :-1]).features).draft(at)
    previous, drafts, confidences = tokens.gather(1, at), [], []
    for k in range(drafter.gamma):
        step = block.step(k, previous)
        previous = step.logits.argmax(dim=-1)
        assert step.confidence_logits is not None
        drafts.append(previous[0])
        confidences.append(step.confidence_logits[0])
    return torch.stack(drafts, dim=1).numpy(), torch.stack(confidences, dim=1).numpy()


def test_recorded_rounds_come_out_again(demo_target: Path, demo_drafter: Path) -> None:
    """≥ 98 % equal accepted lengths, ≥ 84 % identical blocks, median confidence difference ≤ 0.02 where identical."""
    model = AutoModelForCausalLM.from_pretrained(demo_target, dtype=torch.float32).eval()
    drafter, _ = load_drafter(str(demo_drafter), target_parts(model, "demo target"))
    target = TargetForward(model, drafter.target_layer_ids)
    equal, identical, differences = [], [], []
    for file in sorted(GOLDEN.glob("*.jsonl")):
        for record in map(json.loads, file.read_text().splitlines()):
            tokens = record["token_ids"]
            inside = [r for r in record["rounds"] if r["anchor"] + drafter.gamma < len(tokens)]
            drafts, confidences = replay(record, [r["anchor"] for r in inside], target, drafter)
            for recorded, draft, confidence in zip(inside, drafts, confidences, strict=True):
                following = np.array(tokens[recorded["anchor"] + 1 :][: drafter.gamma])
                equal.append(np.cumprod(draft == following).sum() == recorded["accepted"])
                identical.append((draft == recorded["draft_tokens"]).all())
                if identical[-1]:
                    differences.append(np.abs(confidence - recorded["confidence_logits"]))
    assert len(equal) == 1691
    assert np.mean(equal) >= 0.98
    assert np.mean(identical) >= 0.84
    assert np.median(np.concatenate(differences)) <= 0.02


@pytest.fixture(scope="module", autouse=True)
def _all_cores() -> Any:
    """These models are large enough for every core."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
