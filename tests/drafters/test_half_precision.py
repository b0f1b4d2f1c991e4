"""Every family in the types a GPU runs: float16 and bfloat16 logits are finite and near those of float32."""

from dataclasses import replace

import pytest
import tiny_pairs
import torch
from tiny_pairs import FAMILIES, GAMMA, H, V, tiny_target


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("name", list(FAMILIES))
def test_half_precision_drafts_what_float32_drafts(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masks and impossible tokens fit into the type; probabilities differ by rounding only."""
    tokens = torch.randint(0, V - 1, (2, 10), generator=torch.Generator().manual_seed(1))
    anchors = torch.tensor([[3, 9], [1, 5]])
    make_checkpoint = tiny_pairs._checkpoint
    found = []
    for kind in (torch.float32, dtype):
        monkeypatch.setattr(
            tiny_pairs,
            "_checkpoint",
            lambda config, weights, kind=kind: replace(make_checkpoint(config, weights), dtype=kind),
        )
        drafter = FAMILIES[name](tiny_target().to(kind)).drafter
        if name == "causal LM":
            drafter._model.to(kind)  # type: ignore[attr-defined]
        generator = torch.Generator().manual_seed(2)
        features = torch.randn(2, 9, len(drafter.target_layer_ids) * H, generator=generator).to(kind)
        block = drafter.encode(tokens, features).draft(anchors)
        steps = [block.step(k, tokens.gather(1, anchors - k)).logits for k in range(GAMMA)]
        assert all(torch.isfinite(logits).all() for logits in steps)
        found.append(torch.stack(steps).float().softmax(-1))
    torch.testing.assert_close(found[1], found[0], atol=0.15, rtol=0.0)
