"""Running, stopping and going on with a collection, on a tiny pair."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest
import torch
from disk_pair import STOP, VOCAB, save_drafter, save_target, tokenizer, write_prompts
from loopback_server import completion, serving

from dspark_calib.collection import worker
from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.collect import collect
from dspark_calib.collection.messages import Progress, Remark
from dspark_calib.collection.prompts import PromptFile
from dspark_calib.collection.responses.generation import Sampling, generate_responses
from dspark_calib.collection.responses.server import ServerAddress
from dspark_calib.collection.runner import Collected
from dspark_calib.collection.target import find_target, load_target
from dspark_calib.errors import CheckpointError, CollectionError, OutputExists, PromptFileError
from dspark_calib.trace.rounds import Rounds
from dspark_calib.trace.store import TraceWriter, open_trace

PROMPTS = 12


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target, a drafter and prompts."""
    home = tmp_path_factory.mktemp("pair")
    save_target(home / "target")
    save_drafter(home / "drafter")
    write_prompts(home / "prompts.jsonl", PROMPTS)
    return home


def run(home: Path, out: Path, **options: Any) -> Collected:
    """Collect with small batches."""
    settings: dict[str, Any] = {"max_new_tokens": 12, "batch_tokens": 60, "device": "cpu", **options}
    settings.setdefault("target", str(home / "target"))
    settings.setdefault("drafter", str(home / "drafter"))
    settings.setdefault("prompts", [PromptFile(dataset="set", path=home / "prompts.jsonl", domain="chat")])
    return collect(settings.pop("target"), settings.pop("drafter"), settings.pop("prompts"), out, **settings)


@pytest.fixture(scope="module")
def whole(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """The collection, uninterrupted, by one worker."""
    return run(home, tmp_path_factory.mktemp("whole") / "trace")


def assert_same_rows(a: Rounds, b: Rounds) -> None:
    """Every column of every row is equal, to the last bit."""
    for field in fields(Rounds):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if hasattr(left, "decode"):
            assert left.decode() == right.decode(), field.name
        else:
            np.testing.assert_array_equal(left, right, err_msg=field.name)


def test_a_trace_says_where_it_comes_from(home: Path, whole: Collected) -> None:
    """Rows are in prompt order, one part a batch, and provenance names models, law and prompts."""
    rounds, provenance = whole.trace.read(), whole.trace.provenance
    assert whole.batches == len(list(Path(whole.trace.name).glob("part-*.parquet"))) > 3
    order = list(dict.fromkeys(rounds.prompt_id.decode()))
    assert order == [f"p{i}" for i in range(PROMPTS) if f"p{i}" in order]
    assert set(rounds.domain.decode()) == {"chat"}
    assert (provenance.label_law, provenance.temperature, provenance.anchor_policy) == ("sampled", 1.0, "loop")
    assert provenance.target.name == str(home / "target")
    assert provenance.target.content_hash
    assert provenance.drafter.content_hash
    assert list(provenance.prompt_files) == ["set"]
    assert provenance.findings == {}
    assert {"torch", "transformers", "dspark-calib"} <= provenance.versions.keys()


def test_the_same_collection_again_does_nothing(home: Path, whole: Collected) -> None:
    """Over a finished trace of the same recipe nothing is loaded; another recipe is refused by the field."""
    said: list[Progress | Remark] = []
    again = run(home, Path(whole.trace.name), watcher=said.append)
    assert again.batches == 0
    assert [m.text for m in said if isinstance(m, Remark)] == [
        f"{whole.trace.name} holds this collection already, finished; nothing to do"
    ]
    with pytest.raises(OutputExists, match="seed: 0, now 1"):
        run(home, Path(whole.trace.name), seed=1)


def test_overwrite_starts_anew_once_the_models_are_loaded(home: Path, tmp_path: Path) -> None:
    """A failing start leaves the old trace as it was; a good one replaces it."""
    out = tmp_path / "trace"
    old = run(home, out, limit=2)
    with pytest.raises(CheckpointError):
        run(home, out, limit=3, drafter=str(home / "none"), overwrite=True)
    assert open_trace(out).content_hash == old.trace.content_hash
    assert run(home, out, limit=3, overwrite=True).trace.provenance.prompts == 3


def test_progress_ends_at_the_end(home: Path, tmp_path: Path) -> None:
    """Prompts done never fall and end at all of them."""
    said: list[Any] = []
    run(home, tmp_path / "trace", watcher=said.append)
    done = [message.prompts_done for message in said]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, PROMPTS)
    assert said[-1].batches_done == said[-1].batches
    assert said[-1].rounds > 0
    assert replace(said[-1], seconds=2.0).rounds_per_second == said[-1].rounds / 2


def test_kill_and_resume_give_the_uninterrupted_trace(home: Path, whole: Collected, tmp_path: Path) -> None:
    """kill -9 in the middle, then `--resume`: the union is the uninterrupted trace, row for row."""
    out = tmp_path / "trace"
    arguments = [
        "collect", "--target", home / "target", "--drafter", home / "drafter", "--prompts",
        f"set={home / 'prompts.jsonl'}", "--domain", "set=chat", "--max-new-tokens", 12, "--batch-tokens", 60,
        "--device", "cpu", "--out", out,
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "dspark_calib_cli", *map(str, arguments)], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    while len(list(out.glob("part-*.parquet"))) < 2:
        assert process.poll() is None, "the collection ended before it could be killed"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (out / "trace.json").exists()
    (out / ".part-00099.parquet.1.partial").write_bytes(b"half")
    with pytest.raises(OutputExists, match="go on with --resume"):
        run(home, out)
    with pytest.raises(OutputExists, match=r"temperature: 1\.0, now 0\.5"):
        run(home, out, resume=True, temperature=0.5)
    resumed = run(home, out, resume=True)
    assert not list(out.glob(".*"))  # what was being written when the kill came
    assert resumed.resumed >= 2
    assert resumed.batches + resumed.resumed == whole.batches
    assert_same_rows(resumed.trace.read(), whole.trace.read())


def test_a_torn_journal_line_costs_one_batch(home: Path, whole: Collected, tmp_path: Path) -> None:
    """A kill in the middle of a journal line: the line is dropped, its batch collected again."""
    out = tmp_path / "trace"
    run(home, out)
    (out / "trace.json").unlink()
    journal = out / "collection.jsonl"
    journal.write_text(journal.read_text().rstrip("\n")[:-9])
    resumed = run(home, out, resume=True)
    assert resumed.batches == 1
    assert_same_rows(resumed.trace.read(), whole.trace.read())
    assert all(json.loads(line) for line in journal.read_text().splitlines())


def test_another_drafter_under_the_same_name_is_refused(home: Path, tmp_path: Path) -> None:
    """A checkpoint trained on between the runs must not be mixed with what it was."""
    out, drafter = tmp_path / "trace", save_drafter(tmp_path / "drafter")
    run(home, out, drafter=str(drafter))
    (out / "trace.json").unlink()
    (out / "part-00000.parquet").unlink()
    (drafter / "model.safetensors").write_bytes(
        (save_drafter(tmp_path / "other", 7) / "model.safetensors").read_bytes()
    )
    with pytest.raises(OutputExists, match="drafter sha256"):
        run(home, out, drafter=str(drafter), resume=True)


def test_without_room_for_a_batch_it_is_halved(
    home: Path, whole: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of memory above one sequence: pieces of one, the same draws, and the trace says so."""
    score = worker.score_responses

    def small(sequences: Any, *arguments: Any, **options: Any) -> Rounds:
        if len(sequences) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return score(sequences, *arguments, **options)

    monkeypatch.setattr(worker, "score_responses", small)
    said: list[Progress | Remark] = []
    collected = run(home, tmp_path / "trace", watcher=said.append)
    halved, usual = collected.trace.read(), whole.trace.read()
    np.testing.assert_array_equal(halved.draft_tokens, usual.draft_tokens)
    np.testing.assert_array_equal(halved.accepted, usual.accepted)
    np.testing.assert_allclose(halved.confidence_logits, usual.confidence_logits, atol=1e-4)
    assert any(isinstance(m, Remark) and "the device ran out of memory" in m.text for m in said)
    assert any(note.startswith("halved because") for note in collected.trace.provenance.notes)


def test_a_device_without_room_for_one_prompt_is_an_error(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halving ends at one prompt, and the message names it."""

    def never(*_: Any, **__: Any) -> Rounds:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(worker, "score_responses", never)
    with pytest.raises(CollectionError, match="no memory for prompt set/p0 alone"):
        run(home, tmp_path / "trace")


def test_a_full_disk_keeps_what_is_finished(
    home: Path, whole: Collected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC at the third part: one line that says what to do; with room again, `--resume` completes the trace."""
    out, write = tmp_path / "trace", TraceWriter.write_part

    def full(self: TraceWriter, index: int, rounds: Rounds) -> Path:
        if index == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, index, rounds)

    with monkeypatch.context() as patched:
        patched.setattr(TraceWriter, "write_part", full)
        with pytest.raises(CollectionError, match=r"No space left on device.*--resume"):
            run(home, out)
    assert TraceWriter(out).finished_parts() == {0, 1}
    assert_same_rows(run(home, out, resume=True).trace.read(), whole.trace.read())


def test_ctrl_c_keeps_finished_parts(home: Path, tmp_path: Path) -> None:
    """An interrupt between batches leaves the parts before it and nothing half-written."""

    def interrupt(message: Progress | Remark) -> None:
        if isinstance(message, Progress) and message.batches_done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(home, tmp_path / "trace", watcher=interrupt)
    assert {p.name for p in (tmp_path / "trace").iterdir()} == {
        "collection.jsonl", "part-00000.parquet", "part-00001.parquet"
    }  # fmt: skip


def write_responses(path: Path, home: Path, temperature: float, *, shuffle: bool = False) -> Path:
    """Responses of the target to the prompts, by its own full forwards; shuffled: somebody else's."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(home / "target").eval()
    made, generator = tokenizer(), torch.Generator().manual_seed(4)
    rows = []
    for line in map(json.loads, (home / "prompts.jsonl").read_text().splitlines()):
        prompt = made(f"u:{line['prompt']}\na:")["input_ids"]
        tokens = list(prompt)
        for _ in range(16):
            with torch.inference_mode():
                logits = model(torch.tensor([tokens])).logits[0, -1]
            p = torch.ones(VOCAB) if shuffle else torch.softmax(logits / max(temperature, 1e-3), -1)
            tokens.append(int(torch.multinomial(p, 1, generator=generator)))
        rows.append(
            {"dataset": "set", "prompt_id": line["id"], "prompt_token_ids": prompt,
             "response_token_ids": tokens[len(prompt) :], "temperature": temperature}
        )  # fmt: skip
    stop = made.eos_token_id
    for row in rows:
        written = row["response_token_ids"]
        row["response_token_ids"] = written[: written.index(stop) + 1] if stop in written else written
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_responses_from_a_file_are_judged(home: Path, tmp_path: Path, temperature: float) -> None:
    """Own responses pass unflagged, with and without a prompt file; foreign ones become a finding."""
    own = write_responses(tmp_path / "own.jsonl", home, temperature)
    judged = run(home, tmp_path / "a", responses=own, temperature=temperature)
    assert judged.trace.provenance.findings == {}
    assert any(note.startswith("responses read from own.jsonl, sha256 ") for note in judged.trace.provenance.notes)
    bare = run(home, tmp_path / "b", responses=own, temperature=temperature, prompts=[], domain_of={"set": "chat"})
    assert_same_rows(bare.trace.read(), judged.trace.read())
    foreign = write_responses(tmp_path / "foreign.jsonl", home, temperature, shuffle=True)
    flagged = run(home, tmp_path / "c", responses=foreign, temperature=temperature)
    assert flagged.trace.provenance.findings["responses_not_from_target"] > PROMPTS // 2


def test_responses_of_a_server_are_judged(home: Path, tmp_path: Path) -> None:
    """A server that runs the target passes unflagged and the trace names it; one that babbles becomes a finding."""
    model = load_target(find_target(str(home / "target")), "cpu")

    def answer(request: dict[str, Any], number: int) -> Any:
        prompt = Prompt(dataset="d", prompt_id=str(number), domain=None, token_ids=tuple(request["prompt"]))
        how = Sampling(temperature=1.0, max_new_tokens=request["max_tokens"], stop_token_ids=(STOP,), seed=4)
        with lock:
            (written,) = generate_responses(model, [prompt], how)
        tokens = list(written.token_ids[written.prompt_length :])
        return completion(token_ids=tokens, reason="stop" if written.ending == "eos" else "length")

    lock = Lock()
    with serving(answer) as (url, _asked):
        judged = run(home, tmp_path / "a", server=ServerAddress(url=url, model="tiny"))
    assert judged.trace.provenance.findings == {}
    assert judged.trace.provenance.notes == (
        f"responses written by tiny at {url}; of a server only the law is promised",
    )
    assert set(judged.trace.read().prompt_id.decode()) <= {f"p{i}" for i in range(PROMPTS)}
    with serving(lambda request, _: completion(token_ids=[(7 * i) % 200 for i in range(12)])) as (url, _asked):
        flagged = run(home, tmp_path / "b", server=ServerAddress(url=url, model="tiny"))
    assert flagged.trace.provenance.findings["responses_not_from_target"] > 0


def test_a_prompt_without_room_is_named_before_anything_runs(home: Path, tmp_path: Path) -> None:
    """Prompt and response must fit the target's longest sequence."""
    with pytest.raises(PromptFileError, match=r"prompt set/p0: \d+ tokens, \d+ with --max-new-tokens 250, but"):
        run(home, tmp_path / "trace", max_new_tokens=250)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_size": 20}, "hidden_size"),
        ({"vocab_size": 99}, "vocab_size"),
        ({"target_layer_ids": [0, 2]}, "layers"),
    ],
)
def test_a_drafter_that_does_not_fit_leaves_nothing_behind(
    home: Path, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    """The message names the field; no output folder is made."""
    drafter = save_drafter(tmp_path / "drafter", **changes)  # type: ignore[arg-type]
    with pytest.raises(CheckpointError, match=said):
        run(home, tmp_path / "trace", drafter=str(drafter))
    assert not (tmp_path / "trace").exists()


def test_truncated_and_incomplete_targets_are_named(home: Path, tmp_path: Path) -> None:
    """Weights cut short, and weights that transformers would silently fill with random numbers."""
    from safetensors.torch import load_file, save_file

    cut, gap = save_target(tmp_path / "cut"), save_target(tmp_path / "gap")
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    tensors = load_file(gap / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, gap / "model.safetensors", metadata={"format": "pt"})
    for target, said in ((cut, "truncated"), (gap, r"1 weights are missing, such as model\.layers\.1")):
        with pytest.raises(CheckpointError, match=said):
            run(home, tmp_path / "trace", target=str(target))
    assert not (tmp_path / "trace").exists()


def test_responses_of_one_token_make_no_trace(home: Path, tmp_path: Path) -> None:
    """A target that stops at once leaves nothing to judge; the message says where to look."""
    rows = []
    for line in map(json.loads, (home / "prompts.jsonl").read_text().splitlines()):
        prompt = tokenizer()(f"u:{line['prompt']}\na:")["input_ids"]
        rows.append(
            {"dataset": "set", "prompt_id": line["id"], "prompt_token_ids": prompt,
             "response_token_ids": [tokenizer().eos_token_id], "temperature": 1.0}
        )  # fmt: skip
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(CollectionError, match="no rounds: every response ends with its first token"):
        run(home, tmp_path / "trace", responses=tmp_path / "r.jsonl")
    assert not (tmp_path / "trace").exists()
