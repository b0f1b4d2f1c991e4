"""`collect`: from names and files to a trace, in one call."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from dspark_calib.collection.job import CollectionJob, ResponseSource
from dspark_calib.collection.journal import Recipe
from dspark_calib.collection.messages import Watcher, ignore
from dspark_calib.collection.plan import CollectionPlan, plan_recorded, plan_writing
from dspark_calib.collection.prompts import PromptFile
from dspark_calib.collection.responses.generation import GeneratedResponses, Sampling
from dspark_calib.collection.responses.server import ServedResponses, ServerAddress
from dspark_calib.collection.runner import Collected, Workers, collect_trace
from dspark_calib.collection.target import TargetDescription, choose_device, describe_target, find_target
from dspark_calib.drafters.checkpoint import find_checkpoint, hash_files, weight_files
from dspark_calib.drafters.loading import NGRAM, parse_source
from dspark_calib.trace.provenance import ANCHOR_POLICIES

CPU_BATCH_TOKENS = 8_192
GPU_BATCH_TOKENS = 131_072


def collect(
    target: str,
    drafter: str,
    prompts: Sequence[PromptFile],
    out: Path,
    *,
    responses: Path | None = None,
    server: ServerAddress | None = None,
    temperature: float = 1.0,
    max_new_tokens: int = 512,
    anchors: str = "loop",
    confidence: str = "head",
    replicates: int = 1,
    limit: int | None = None,
    domain_of: Mapping[str, str] | None = None,
    device: str = "auto",
    dtype: str = "auto",
    batch_tokens: int | None = None,
    workers: Workers = 1,
    seed: int = 0,
    resume: bool = False,
    overwrite: bool = False,
    trust_remote_code: bool = False,
    watcher: Watcher = ignore,
) -> Collected:
    """Collect a trace: how a drafter's blocks fare on what its target writes.

    Args:
        target: Hub name, folder or GGUF file.
        drafter: Hub name, folder or `ngram`.
        prompts: Prompt files; may be empty where `responses` is given.
        out: Folder of the trace.
        responses: File of responses the target wrote elsewhere.
        server: OpenAI-compatible server that runs the target; without it and without `responses`, the target
            writes here.
        temperature: Sampling temperature τ; 0 is greedy.
        max_new_tokens: Tokens after which a response is cut.
        anchors: `loop`, the blocks an engine would verify, or `all`.
        confidence: `head`, `draft-prob`, `margin` or `entropy`.
        replicates: Trajectories a response.
        limit: Most prompts of a file.
        domain_of: Domain by dataset, where `responses` stands without prompt files.
        device: `auto` or a torch device.
        dtype: `auto`, `float32`, `bfloat16` or `float16`.
        batch_tokens: Most padded tokens of a batch; None takes `CPU_BATCH_TOKENS` or `GPU_BATCH_TOKENS`.
        workers: Processes, or `ray`.
        seed: Of generation and coupling.
        resume: Go on with an interrupted collection.
        overwrite: Replace what is there.
        trust_remote_code: Whether code that lies with the target may run.
        watcher: Told of progress and remarks.

    Returns:
        The finished trace and what was done for it.

    Raises:
        DsparkCalibError: Naming what is wrong with a file, a model, a server or the output.
        ValueError: If an option is out of range.
    """
    _check_options(temperature, max_new_tokens, anchors, replicates, batch_tokens)
    described = describe_target(find_target(target, trust_remote_code=trust_remote_code))
    batch_tokens = batch_tokens or _default_batch_tokens(device)
    sampling = Sampling(
        temperature=temperature, max_new_tokens=max_new_tokens, stop_token_ids=described.stop_token_ids, seed=seed
    )
    source = None if responses is not None else _source(sampling, server, described)
    if responses is not None:
        plan = plan_recorded(
            responses, prompts, described,
            temperature=temperature, batch_tokens=batch_tokens, limit=limit, domain_of=domain_of,
        )  # fmt: skip
    else:
        plan = plan_writing(
            prompts, described,
            max_new_tokens=max_new_tokens, batch_tokens=batch_tokens, limit=limit, notes=_notes_on(server),
        )  # fmt: skip
    job = CollectionJob(
        target=target,
        drafter=drafter,
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        source=source,
        temperature=temperature,
        anchors=anchors,
        confidence=confidence,
        replicates=replicates,
        seed=seed,
        batch_tokens=batch_tokens,
        threads=torch.get_num_threads(),
    )
    recipe = _recipe(plan, job, described, max_new_tokens if source else None, server, limit)
    return collect_trace(
        plan, job, described.checkpoint, recipe, out,
        workers=workers, resume=resume, overwrite=overwrite, watcher=watcher,
    )  # fmt: skip


def _check_options(
    temperature: float, max_new_tokens: int, anchors: str, replicates: int, batch_tokens: int | None
) -> None:
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be a number ≥ 0, got {temperature}")
    if max_new_tokens < 2:
        raise ValueError(
            f"max_new_tokens must be at least 2 (a block needs a token after its anchor), got {max_new_tokens}"
        )
    if anchors not in ANCHOR_POLICIES:
        raise ValueError(f"anchors must be one of {', '.join(ANCHOR_POLICIES)}, got {anchors!r}")
    if replicates < 1:
        raise ValueError(f"replicates must be at least 1, got {replicates}")
    if batch_tokens is not None and batch_tokens < 1:
        raise ValueError(f"batch_tokens must be at least 1, got {batch_tokens}")


def _default_batch_tokens(device: str) -> int:
    return CPU_BATCH_TOKENS if choose_device(device).startswith("cpu") else GPU_BATCH_TOKENS


def _source(sampling: Sampling, server: ServerAddress | None, target: TargetDescription) -> ResponseSource:
    if server is None:
        return GeneratedResponses(sampling=sampling)
    return ServedResponses(sampling=sampling, server=server, tokenizer=target.tokenizer)


def _notes_on(server: ServerAddress | None) -> tuple[str, ...]:
    if server is None:
        return ()
    return (f"responses written by {server.model} at {server.url}; of a server only the law is promised",)


def _recipe(
    plan: CollectionPlan,
    job: CollectionJob,
    target: TargetDescription,
    max_new_tokens: int | None,
    server: ServerAddress | None,
    limit: int | None,
) -> Recipe:
    """Return everything that decides what comes out, as JSON values."""
    domains = {prompt.dataset: prompt.domain for batch in plan.batches for prompt in batch.prompts}
    settings: dict[str, Any] = {
        "target": target.checkpoint.name,
        "target sha256": target.checkpoint.content_hash,
        "drafter": job.drafter,
        "drafter sha256": _drafter_hash(job.drafter),
        "dtype": job.dtype,
        "temperature": job.temperature,
        "anchors": job.anchors,
        "confidence": job.confidence,
        "replicates": job.replicates,
        "seed": job.seed,
        "batch tokens": job.batch_tokens,
        "batches": len(plan.batches),
        "max new tokens": max_new_tokens,
        "responses from": None if server is None else f"{server.url} {server.model}",
        "responses": next((note for note in plan.notes), None),
        "limit": limit,
        "domains": domains,
    }
    return settings | {f"prompts {name}": digest for name, digest in sorted(plan.prompt_files.items())}


def _drafter_hash(source: str) -> str | None:
    name, _ = parse_source(source)
    return None if name == NGRAM else hash_files(weight_files(find_checkpoint(name)))
