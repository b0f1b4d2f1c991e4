"""No input makes a reader crash, hang or execute anything: rounds or one clear error, nothing else."""

import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dspark_calib.errors import DsparkCalibError
from dspark_calib.trace.readers.acceptance import read_acceptance
from dspark_calib.trace.readers.deepinfer import read_deepinfer
from dspark_calib.trace.readers.deepspec import read_deepspec
from dspark_calib.trace.readers.sglang_server_info import read_sglang_server_info
from dspark_calib.trace.readers.sglang_shards import read_sglang_shards
from dspark_calib.trace.readers.vllm_metrics import read_vllm_metrics

Reader = Callable[[list[Path]], Any]


def _shard_bytes() -> bytes:
    buffer = io.BytesIO()
    torch.save({"logits": torch.ones(3, 2), "prefix_mask": torch.ones(3, 2)}, buffer)
    return buffer.getvalue()


READERS: dict[str, Reader] = {
    "deepspec": read_deepspec,
    "sglang-shards": read_sglang_shards,
    "sglang-server-info": read_sglang_server_info,
    "vllm-metrics": read_vllm_metrics,
    "deepinfer": read_deepinfer,
    "acceptance": lambda paths: read_acceptance(paths[0]),
}
SEEDS: dict[str, bytes] = {
    "deepspec": b'{"logits": [1.5, -0.25, 3.0], "labels": [1, 1, 0]}\n{"logits": [0.5], "labels": [1]}\n',
    "sglang-shards": _shard_bytes(),
    "sglang-server-info": json.dumps(
        {
            "version": "0.5",
            "internal_states": [
                {
                    "dspark_info_record": {
                        "mode": "compact",
                        "gamma": 2,
                        "records": [
                            {
                                "forward_ct": 1,
                                "reqs": [
                                    {
                                        "rid": "a",
                                        "prefix_len": 4,
                                        "verify_len": 3,
                                        "acc_len": 2,
                                        "correct_drafts": 1,
                                        "confidence": [0.5, 0.25],
                                        "draft_tokens": [1, 2],
                                    }
                                ],
                            }
                        ],
                    }
                }
            ],
        }
    ).encode(),
    "vllm-metrics": b'vllm:spec_decode_num_drafts_total{engine="0"} 10\n'
    b'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 8\n'
    b"SpecDecoding metrics: Accepted: 3 tokens, Drafted: 4 tokens, Per-position acceptance rate: 1.000, 0.500, Avg\n",
    "deepinfer": b"RANK 0, GPU 0, step 5, [stats] (nextn_accept_rate [50.00%, 25.00%] | verified_tokens 8 | "
    b"accepted_tokens 3 | avg_verified_len 2.00 | x)\n",
    "acceptance": json.dumps(
        {
            "schema": "dspark-calib/acceptance/1",
            "source": "x",
            "rounds": 10,
            "positions": [{"position": 1, "verified": 10, "accepted": 8}],
            "read": 1,
            "kept": 1,
            "refused": {},
            "notes": [],
        }
    ).encode(),
}
TOKENS = [
    b"NaN",
    b"-1",
    b"null",
    b"1e999",
    b"[]",
    b"{}",
    b"true",
    b'"\\ud800"',
    b"\xff",
    b"\x00",
    b"9" * 30,
    b"\n",
    b"",
]
WORDS = st.sampled_from(
    [
        "logits",
        "labels",
        "gamma",
        "records",
        "reqs",
        "confidence",
        "verify_len",
        "acc_len",
        "rid",
        "positions",
        "rounds",
        "schema",
        "read",
        "kept",
        "mode",
        "forward_ct",
        "internal_states",
        "dspark_info_record",
        "dspark-calib/acceptance/1",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=3), inner, max_size=5),
    max_leaves=12,
)


@st.composite
def damaged(draw: st.DrawFn, seed: bytes) -> bytes:
    """A valid file with some spans replaced, or cut short."""
    data = seed
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        data = data[:start] + draw(st.sampled_from(TOKENS) | st.binary(max_size=6)) + data[end:]
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 7)) == 0 else data


@st.composite
def damaged_pickles(draw: st.DrawFn) -> bytes:
    """A shard whose pickle, inside an intact zip, was tampered with."""
    source = zipfile.ZipFile(io.BytesIO(SEEDS["sglang-shards"]))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, draw(damaged(content)) if name.endswith(".pkl") or draw(st.booleans()) else content)
    return buffer.getvalue()


def inputs(name: str) -> st.SearchStrategy[bytes]:
    """Return inputs for one reader: damaged real files, JSON of another shape, and noise."""
    as_json = JSON.map(lambda value: json.dumps(value).encode(errors="surrogatepass"))
    pickles = damaged_pickles() if name == "sglang-shards" else st.nothing()
    return (
        damaged(SEEDS[name])
        | as_json
        | st.lists(as_json, max_size=3).map(b"\n".join)
        | st.binary(max_size=80)
        | pickles
    )


def never_crashes(name: str, folder: Path, content: bytes) -> None:
    """Read one input; only the toolkit's own one-line errors may come out."""
    path = folder / "input.0.pt"
    path.write_bytes(content)
    try:
        READERS[name]([path])
    except DsparkCalibError as error:
        assert "\n" not in str(error)  # noqa: PT017 - an input may also be read without error


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all inputs; each overwrites the last."""
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("name", READERS)
def test_the_undamaged_file_is_read(name: str, folder: Path) -> None:
    """Every seed of the fuzzing is valid, so damage starts from inside the format."""
    path = folder / "input.0.pt"
    text = SEEDS[name]
    path.write_bytes(text.split(b"SpecDecoding")[0] if name == "vllm-metrics" else text)
    READERS[name]([path])


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_input_crashes_a_reader(name: str, folder: Path, data: st.DataObject) -> None:
    """Rounds or one clear line."""
    never_crashes(name, folder, data.draw(inputs(name)))


def mutant(rng: random.Random, seed: bytes) -> bytes:
    """Damage a valid file as `damaged` does, a hundred times faster than a property test draws."""
    data = seed
    for _ in range(rng.randint(1, 4)):
        start = rng.randint(0, len(data))
        end = min(len(data), start + rng.randint(0, 12))
        other = rng.randint(0, len(data))
        piece = rng.choice(
            (rng.choice(TOKENS), rng.randbytes(rng.randint(0, 6)), data[other : other + rng.randint(0, 40)])
        )
        data = data[:start] + piece + data[end:]
    return data[: rng.randint(0, len(data))] if rng.random() < 0.1 else data


def mutant_shard(rng: random.Random, seed: bytes) -> bytes:
    """Damage the pickle inside an intact zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(seed)) as source, zipfile.ZipFile(buffer, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, mutant(rng, content) if name.endswith(".pkl") else content)
    return buffer.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_no_input_crashes_a_reader_in_a_hundred_thousand(name: str, folder: Path) -> None:
    """Six readers times 17,000 damaged files: no traceback, no hang."""
    rng = random.Random(f"fuzz {name}")
    for _ in range(17_000):
        inner = name == "sglang-shards" and rng.random() < 0.5
        never_crashes(name, folder, (mutant_shard if inner else mutant)(rng, SEEDS[name]))
