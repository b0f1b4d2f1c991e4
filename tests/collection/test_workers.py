"""Workers of every kind give the same trace, and what goes wrong in one of them reaches the person."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from disk_pair import save_drafter, save_target, write_prompts

from dspark_calib.collection.batches import cut_into_batches
from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.collect import collect
from dspark_calib.collection.job import CollectionJob, Tick
from dspark_calib.collection.prompts import PromptFile
from dspark_calib.collection.runner import Collected
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.workers.processes import run_in_processes, worker_devices
from dspark_calib.errors import CheckpointError, ResponseError, WorkersFailed


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a target, a drafter and prompts."""
    home = tmp_path_factory.mktemp("pair")
    save_target(home / "target")
    save_drafter(home / "drafter")
    write_prompts(home / "prompts.jsonl", 10)
    return home


def run(home: Path, out: Path, workers: Any) -> Collected:
    """Collect with small batches."""
    return collect(
        str(home / "target"), str(home / "drafter"), [PromptFile(dataset="set", path=home / "prompts.jsonl")], out,
        max_new_tokens=12, batch_tokens=60, device="cpu", workers=workers,
    )  # fmt: skip


def test_two_processes_write_the_trace_that_one_writes(home: Path, tmp_path: Path) -> None:
    """float32 on the CPU: equal part files, byte for byte, and equal provenance."""
    one, two = run(home, tmp_path / "one", 1), run(home, tmp_path / "two", 2)
    assert one.batches > 3
    assert two.trace.content_hash == one.trace.content_hash
    assert two.trace.provenance == one.trace.provenance


@pytest.mark.slow
def test_ray_actors_write_the_trace_that_one_process_writes(home: Path, tmp_path: Path) -> None:
    """float32 on the CPU: equal part files, byte for byte, and equal provenance."""
    one, ray = run(home, tmp_path / "one", 1), run(home, tmp_path / "ray", "ray")
    assert ray.trace.content_hash == one.trace.content_hash
    assert ray.trace.provenance == one.trace.provenance


@pytest.mark.slow
def test_a_ray_actor_that_dies_is_told(home: Path) -> None:
    """The actor's death becomes one line that says how to go on."""
    from dspark_calib.collection.workers.ray_actors import run_on_ray

    prompts = [Prompt(dataset="d", prompt_id="p", domain=None, token_ids=(1, 2))]
    with pytest.raises(WorkersFailed, match=r"a Ray actor died .*--resume"):
        run_on_ray(job(home, "die"), cut_into_batches(prompts, 60, max_new_tokens=12), lambda _report: None)


@pytest.mark.slow
def test_a_ray_cluster_out_of_reach_is_told(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No failure of the disk, though Python counts it among the same errors; nothing is left behind."""
    import ray

    def unreachable(**_: Any) -> None:
        raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379")

    monkeypatch.setattr(ray, "init", unreachable)
    with pytest.raises(WorkersFailed, match=r"no Ray cluster to work on: Failed to connect .* check RAY_ADDRESS"):
        run(home, tmp_path / "trace", "ray")
    assert not (tmp_path / "trace").exists()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails:
    """A source of responses that fails on one prompt."""

    how: str

    @property
    def is_the_target(self) -> bool:
        """Nobody asks."""
        return True

    def respond(self, model: Any, prompts: Sequence[Prompt], tick: Tick) -> list[ResponseSequence]:
        """Fail in the way asked for."""
        if self.how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "refuse":
            raise ResponseError("the server is gone")
        raise KeyError("a bug")


def job(home: Path, how: str, drafter: str = "drafter") -> CollectionJob:
    """A job whose responses fail."""
    return CollectionJob(
        target=str(home / "target"), drafter=str(home / drafter), device="cpu", dtype="float32",
        trust_remote_code=False, source=Fails(how=how), temperature=1.0, anchors="loop", confidence="head",
        replicates=1, seed=0, batch_tokens=60, threads=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("how", "drafter", "kind", "said"),
    [
        ("die", "drafter", WorkersFailed, "worker 1 was killed by SIGKILL at batch 0; .*fewer --workers.*--resume"),
        ("refuse", "drafter", ResponseError, "the server is gone"),
        pytest.param("bug", "drafter", RuntimeError, "(?s)worker 1 failed:.*KeyError: 'a bug'", marks=pytest.mark.slow),
        pytest.param("bug", "none", CheckpointError, "none", marks=pytest.mark.slow),
    ],
)
def test_what_fails_in_a_worker_is_told_by_the_parent(
    home: Path, how: str, drafter: str, kind: type[Exception], said: str
) -> None:
    """A death names worker and batch; a data error stays what it is; a bug keeps its traceback."""
    prompts = [Prompt(dataset="d", prompt_id="p", domain=None, token_ids=(1, 2))]
    batches = cut_into_batches(prompts, 60, max_new_tokens=12)
    with pytest.raises(kind, match=said):
        run_in_processes(job(home, how, drafter), batches, 1, lambda _report: None)


def test_workers_take_the_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One CUDA device each, shared when there are fewer; a device that was named is for all."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert worker_devices("auto", 3) == ["cuda:0", "cuda:1", "cuda:0"]
    assert worker_devices("cuda:1", 2) == ["cuda:1", "cuda:1"]
    assert worker_devices("cpu", 2) == ["cpu", "cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert worker_devices("auto", 2) == ["cpu", "cpu"]
