"""Profiling a target: the right work is timed, every sample is kept, and nothing is invented."""

import os
from typing import Any

import numpy as np
import pytest

from dspark_calib.errors import CurveError
from dspark_calib.scheduling.curve_files import read_curve, write_curve
from dspark_calib.scheduling.profile import DecodeStep, profile_target, split_batch

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def model() -> Any:
    """A tiny random Llama on the CPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=101,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def test_split_batch_covers_every_size() -> None:
    """Requests times query length is always B, no query is too long, and no fewer requests would do."""
    for tokens in range(1, 200):
        requests, length = split_batch(tokens, 8)
        assert requests * length == tokens
        assert length <= 8
        assert all(tokens % fewer or tokens // fewer > 8 for fewer in range(1, requests))


def test_the_step_attends_to_the_whole_cache(model: Any) -> None:
    """Its logits equal those of an ordinary forward over a growing cache with the same keys and values."""
    from transformers import DynamicCache

    with torch.inference_mode():
        step = DecodeStep(model, 3, 4, 9)
        grown = DynamicCache()
        for index, layer in enumerate(step.cache.layers):
            grown.update(layer.keys[:, :, :9].clone(), layer.values[:, :, :9].clone(), index)
        name = next(iter(step._arguments))
        expected = model(input_ids=step.tokens, use_cache=True, **{name: grown}).logits
        for _ in range(2):  # the second run overwrites the first one's entries
            torch.testing.assert_close(step(), expected, rtol=1e-4, atol=1e-5)


def test_profile_keeps_every_sample(model: Any, tmp_path: Any) -> None:
    """Sorted unique sizes, all samples, the trimmed mean of them, and conditions that survive the file."""
    seen: list[int] = []
    curve = profile_target(
        model, target="tiny", batch_sizes=[8, 1, 12, 8], context=5, query_length=8, repeats=5, on_point=seen.append
    )
    assert seen == curve.tokens.tolist() == [1, 8, 12]
    assert curve.samples_ms is not None
    for speed, samples in zip(curve.steps_per_second, curve.samples_ms, strict=True):
        assert len(samples) == 5
        assert 1000 / speed == pytest.approx(np.mean(sorted(samples)[1:4]))  # a fifth left out at either end
    assert curve.lookup == "linear"
    assert curve.conditions is not None
    assert (curve.conditions.target, curve.conditions.context, curve.conditions.cuda_graphs) == ("tiny", 5, False)
    assert read_curve(write_curve(curve, tmp_path / "sps.json")).conditions == curve.conditions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_sizes": []}, "batch sizes"),
        ({"batch_sizes": [0, 4]}, "batch sizes"),
        ({"context": 0}, "context = 0"),
        ({"query_length": 0}, "query length = 0"),
        ({"repeats": 0}, "repeats = 0"),
    ],
)
def test_impossible_requests_are_refused(model: Any, change: dict[str, Any], message: str) -> None:
    """Values out of range are named before anything runs."""
    arguments = {"target": "tiny", "batch_sizes": [1], "context": 4, "query_length": 8, "repeats": 1} | change
    with pytest.raises(CurveError, match=message):
        profile_target(model, **arguments)


def test_out_of_memory_names_the_batch(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that does not fit is named with what to lower."""

    def full(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(DecodeStep, "__call__", full)
    with pytest.raises(CurveError, match=r"4 tokens .* do not fit"):
        profile_target(model, target="tiny", batch_sizes=[4], context=4, query_length=8)


@pytest.mark.gpu
def test_profile_on_a_gpu_replays_graphs(model: Any) -> None:
    """On CUDA the captured step gives the same logits as the plain one, and the curve says so."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    curve = profile_target(model.to("cuda"), target="tiny", batch_sizes=[1, 8], context=16, query_length=8)
    assert curve.lookup == "ceiling"
    assert curve.conditions is not None
    assert curve.conditions.cuda_graphs
