"""SGLang's shards become rounds; nothing in a file is ever executed."""

import contextlib
import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_calib.errors import MissingExtra, TraceFormatError
from dspark_calib.trace.readers.sglang_shards import read_sglang_shards
from dspark_calib.trace.rounds import concat_rounds

torch = pytest.importorskip("torch")


def save(path: Path, content: Any) -> Path:
    """Write a shard as SGLang's recorder does."""
    torch.save(content, path)
    return path


def shard(logits: Any, mask: Any, **more: Any) -> dict[str, Any]:
    """Return the content of a shard."""
    return {
        "logits": torch.tensor(logits, dtype=torch.float32),
        "prefix_mask": torch.tensor(mask, dtype=torch.float32),
        **more,
    }


def random_shard(rng: np.random.Generator, rows: int) -> dict[str, Any]:
    """Return a shard with a prefix mask, and an observed mask that covers it."""
    observed = rng.integers(0, 6, rows)
    accepted = np.minimum(rng.integers(0, 6, rows), observed)
    k = np.arange(5)
    return shard(
        rng.normal(size=(rows, 5)),
        (k < accepted[:, None]).astype(float),
        observed_mask=torch.tensor((k < observed[:, None]).astype(np.float32)),
    )


def test_shards_become_rounds_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """Shard 2 comes before shard 10, labels are greedy, the window is what was observed."""
    save(tmp_path / "run.10.pt", shard([[9.0, 9.0]], [[0, 0]]))
    save(tmp_path / "run.2.pt", shard([[1.0, 2.0], [np.nan, 0], [3.0, 4.0]], [[1, 0], [0, 0], [1, 1]]))
    imported = read_sglang_shards([tmp_path])
    rounds = concat_rounds(imported.batches)
    assert rounds.confidence_logits.tolist() == [[1, 2], [3, 4], [9, 9]]
    assert rounds.accepted.tolist() == [1, 2, 0]
    assert rounds.observed.tolist() == [2, 2, 2]
    assert rounds.dataset.decode() == ["run"] * 3
    assert imported.provenance.label_law == "greedy"
    assert dict(imported.account.refused) == {"logit not finite": 1}
    assert imported.account.balances


def test_shards_that_do_not_say_what_was_verified_are_counted(tmp_path: Path) -> None:
    """A note says how many shards have no observed_mask; with one in each there is no such note."""
    with_mask = save(tmp_path / "a.0.pt", random_shard(np.random.default_rng(0), 20))
    without = save(tmp_path / "a.1.pt", shard([[1.0] * 5], [[1, 0, 0, 0, 0]]))
    notes = [" ".join(read_sglang_shards(paths).provenance.notes) for paths in ([with_mask, without], [with_mask])]
    assert "1 of 2 shards hold no observed_mask" in notes[0]
    assert "observed_mask" not in notes[1]


def test_observed_mask_bounds_the_window(tmp_path: Path) -> None:
    """Rows are refused where nothing was observed; elsewhere the observed mask is kept, and rows balance."""
    content = random_shard(np.random.default_rng(0), 500)
    imported = read_sglang_shards([save(tmp_path / "a.0.pt", content)])
    rounds = concat_rounds(imported.batches)
    observed = content["observed_mask"].sum(1).numpy().astype(int)
    assert rounds.observed.tolist() == observed[observed > 0].tolist()
    assert rounds.verified.tolist() == rounds.observed.tolist()
    assert rounds.accepted.tolist() == content["prefix_mask"].sum(1).numpy().astype(int)[observed > 0].tolist()
    assert imported.account.read == 500
    assert imported.account.balances


def test_bfloat16_and_bool_tensors_are_read(tmp_path: Path) -> None:
    """A recorder of another precision is no obstacle."""
    content = {"logits": torch.tensor([[1.5, 2]], dtype=torch.bfloat16), "prefix_mask": torch.tensor([[True, False]])}
    rounds = concat_rounds(read_sglang_shards([save(tmp_path / "a.0.pt", content)]).batches)
    assert rounds.confidence_logits.tolist() == [[1.5, 2]]
    assert rounds.accepted.tolist() == [1]


def test_a_pickle_is_never_executed(tmp_path: Path) -> None:
    """A file whose unpickling would run code is refused and the code does not run."""

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "executed"),)

    with pytest.raises(TraceFormatError, match="holds more than tensors"):
        read_sglang_shards([save(tmp_path / "bomb.0.pt", {"logits": Bomb()})])
    plain = tmp_path / "plain.pt"
    plain.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(TraceFormatError, match=r"not a file of torch\.save"):
        read_sglang_shards([plain])
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("kept", [0, 1, 10, 100, 400, 800, -30, -1])
def test_a_truncated_shard_is_one_clear_error(tmp_path: Path, kept: int) -> None:
    """A shard cut anywhere is named, without a traceback of torch."""
    path = save(tmp_path / "a.0.pt", shard(np.ones((50, 5)), np.ones((50, 5))))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(TraceFormatError, match=r"a\.0\.pt"):
        read_sglang_shards([path])


def test_a_zip_whose_directory_is_damaged(tmp_path: Path) -> None:
    """A zip that claims to span several disks made Python's own check raise; found by fuzzing."""
    content = bytearray(save(tmp_path / "a.0.pt", shard(np.ones((2, 3)), np.ones((2, 3)))).read_bytes())
    end = content.rfind(b"PK\x05\x06")
    locator = b"PK\x06\x07" + (0).to_bytes(4, "little") + (0).to_bytes(8, "little") + (7).to_bytes(4, "little")
    path = tmp_path / "b.0.pt"
    path.write_bytes(bytes(content[:end]) + locator + bytes(content[end:]))
    with pytest.raises(zipfile.BadZipFile, match="multiple disks"):
        zipfile.is_zipfile(path)
    with contextlib.suppress(TraceFormatError):
        read_sglang_shards([path])


def test_a_tensor_without_numbers_is_named(tmp_path: Path) -> None:
    """A tensor on the meta device has a shape and no content."""
    content = {"logits": torch.ones(2, 3, device="meta"), "prefix_mask": torch.ones(2, 3)}
    with pytest.raises(TraceFormatError, match=r"a\.0\.pt"):
        read_sglang_shards([save(tmp_path / "a.0.pt", content)])


def test_a_zip_that_is_no_shard(tmp_path: Path) -> None:
    """Another zip file is refused."""
    path = tmp_path / "a.0.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "hello")
    with pytest.raises(TraceFormatError, match="damaged"):
        read_sglang_shards([path])


ONES = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("content", "culprit"),
    [
        ([ONES], "expected a dict"),
        ({}, "no tensor 'logits'; it holds nothing"),
        ({"logits": ONES}, "no tensor 'prefix_mask'"),
        ({"logits": [[1.0]], "prefix_mask": ONES}, "no tensor 'logits'"),
        ({"logits": ONES, "prefix_mask": torch.ones(2, 4)}, "shape"),
        ({"logits": ONES, "prefix_mask": torch.ones(3, 3)}, "shape"),
        ({"logits": ONES, "prefix_mask": torch.ones(2)}, "expected numbers in the shape"),
        ({"logits": torch.ones(2, 0), "prefix_mask": torch.ones(2, 0)}, "expected numbers in the shape"),
        ({"logits": ONES * 1j, "prefix_mask": ONES}, "expected numbers in the shape"),
        ({"logits": ONES.to_sparse(), "prefix_mask": ONES}, "expected numbers in the shape"),
        ({"logits": torch.ones(0, 3), "prefix_mask": torch.ones(0, 3)}, "empty shard"),
        (
            {"logits": ONES, "prefix_mask": torch.tensor([[1.0, 1, 1], [1, 0, 1]])},
            "prefix_mask, row 1: a one follows a zero",
        ),
        ({"logits": ONES, "prefix_mask": ONES * 0.5}, "row 0: a mask holds only 0 and 1"),
        (
            {"logits": ONES, "prefix_mask": ONES, "observed_mask": ONES * torch.tensor([1.0, 0, 1])},
            "observed_mask, row 0",
        ),
        ({"logits": ONES, "prefix_mask": ONES, "observed_mask": ONES * torch.tensor([1.0, 1, 0])}, "not observed"),
        ({"logits": ONES, "prefix_mask": ONES, "pairing": "batch_slot"}, "pairing = 'batch_slot'"),
        ({"logits": ONES * float("nan"), "prefix_mask": ONES}, "logit not finite: 2"),
    ],
)
def test_a_broken_shard_is_named(tmp_path: Path, content: Any, culprit: str) -> None:
    """File, tensor and row stand in the message."""
    with pytest.raises(TraceFormatError) as raised:
        read_sglang_shards([save(tmp_path / "a.0.pt", content)])
    assert culprit in str(raised.value)
    assert "a.0.pt" in str(raised.value)


def test_the_same_shard_twice_mixed_gamma_and_an_empty_folder(tmp_path: Path) -> None:
    """What would distort silently is refused."""
    first = save(tmp_path / "a.0.pt", shard(np.ones((2, 3)), np.ones((2, 3))))
    copy = tmp_path / "a.1.pt"
    copy.write_bytes(first.read_bytes())
    with pytest.raises(TraceFormatError, match="the same content as"):
        read_sglang_shards([first, copy])
    save(copy, shard(np.ones((2, 4)), np.ones((2, 4))))
    with pytest.raises(TraceFormatError, match=r"block sizes differ: .*γ = 3.*γ = 4"):
        read_sglang_shards([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(TraceFormatError, match=r"no \.pt file"):
        read_sglang_shards([tmp_path / "empty"])


def test_without_torch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The import of torch happens inside the function, and its absence is explained."""
    path = save(tmp_path / "a.0.pt", shard(np.ones((2, 3)), np.ones((2, 3))))
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"dspark-calib\[collect\]"):
        read_sglang_shards([path])


def test_a_shard_saved_twice_differs_only_in_bytes(tmp_path: Path) -> None:
    """The zip of torch.save is what is compared, so equal bytes are the same shard."""
    buffers = [io.BytesIO(), io.BytesIO()]
    for buffer in buffers:
        torch.save(shard(np.ones((2, 3)), np.ones((2, 3))), buffer)
    assert buffers[0].getvalue() == buffers[1].getvalue()
