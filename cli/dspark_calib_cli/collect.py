"""`collect`: a trace from a target, a drafter and prompts."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dspark_calib.errors import CollectionError
from dspark_calib_cli.console import RESULTS, print_json, progress_bar, say, warn
from dspark_calib_cli.options import (
    DEFAULT_TRACE,
    Config,
    Format,
    OutputFormat,
    Overwrite,
    Quiet,
    Seed,
    Workers,
    worker_count,
)

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from dspark_calib.collection.messages import Progress, Remark
    from dspark_calib.collection.responses.server import ServerAddress
    from dspark_calib.collection.runner import Collected


class AnchorPolicy(StrEnum):
    """Which tokens begin a block."""

    LOOP = "loop"
    ALL = "all"


class ConfidenceSource(StrEnum):
    """Where confidences come from."""

    HEAD = "head"
    DRAFT_PROB = "draft-prob"
    MARGIN = "margin"
    ENTROPY = "entropy"


def collect(
    target: Annotated[
        str, typer.Option("--target", metavar="NAME|FOLDER", help="Verifying model: hub name, folder or GGUF file.")
    ],
    drafter: Annotated[
        str, typer.Option("--drafter", metavar="NAME|FOLDER", help="Draft model: hub name, folder, or `ngram`.")
    ],
    prompts: Annotated[
        list[str] | None, typer.Option("--prompts", metavar="[NAME=]FILE", help="Prompts, JSONL; repeatable.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Trace to write.")] = DEFAULT_TRACE,
    responses: Annotated[
        Path | None, typer.Option("--responses", metavar="FILE", help="Responses the target wrote elsewhere, JSONL.")
    ] = None,
    responses_from: Annotated[
        str | None, typer.Option("--responses-from", metavar="URL", help="OpenAI-compatible server running the target.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="M", help="The server's name for the target.", show_default="target"),
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="Of sampling; 0 is greedy.")] = 1.0,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=2, help="Where a response is cut.")] = 512,
    anchors: Annotated[
        AnchorPolicy, typer.Option("--anchors", help="Blocks an engine would verify, or one at every token.")
    ] = AnchorPolicy.LOOP,
    confidence: Annotated[
        ConfidenceSource, typer.Option("--confidence", help="The drafter's head, or a proxy that needs none.")
    ] = ConfidenceSource.HEAD,
    replicates: Annotated[int, typer.Option("--replicates", min=1, help="Trajectories a response.")] = 1,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Most prompts of a file.")] = None,
    domain: Annotated[
        list[str] | None, typer.Option("--domain", metavar="NAME=DOMAIN", help="Domain of a prompt file; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, …")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")] = "auto",
    batch_tokens: Annotated[
        int | None,
        typer.Option("--batch-tokens", min=1, help="Bound on memory.", show_default="8192, on a GPU 131072"),
    ] = None,
    workers: Workers = "1",
    seed: Seed = 0,
    resume: Annotated[bool, typer.Option("--resume/--no-resume", help="Go on with an interrupted collection.")] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that lies with the target.")
    ] = False,
    output_format: Format = OutputFormat.TEXT,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    config: Config = None,  # noqa: ARG001 - read before the command is chosen
) -> None:
    """Let the target answer prompts and record how the drafter's blocks fare on the answers.

    Example: dspark-calib collect --target Qwen/Qwen3-4B --drafter deepseek-ai/dspark_qwen3_4b_block7
    --prompts math=gsm8k.jsonl --domain math=math --out trace
    """
    count = worker_count(workers)
    server = _server(responses_from, model or target, responses)
    from dspark_calib.collection.collect import collect as collect_rounds
    from dspark_calib.collection.prompts import name_domains, name_prompt_files

    with progress_bar(quiet=quiet) as bar:
        try:
            collected = collect_rounds(
                target,
                drafter,
                name_prompt_files(prompts, domain or ()) if prompts else (),
                out,
                responses=responses,
                server=server,
                temperature=temperature,
                max_new_tokens=max_new_tokens,
                anchors=anchors.value,
                confidence=confidence.value,
                replicates=replicates,
                limit=limit,
                domain_of=name_domains(domain or ()),
                device=device,
                dtype=dtype,
                batch_tokens=batch_tokens,
                workers=count,
                seed=seed,
                resume=resume,
                overwrite=overwrite,
                trust_remote_code=trust_remote_code,
                watcher=_Watcher(bar, quiet=quiet),
            )
        except KeyboardInterrupt:
            raise CollectionError(f"interrupted; finished parts of {out} are kept, go on with --resume") from None
    _print(collected, output_format, quiet=quiet)


class _Watcher:
    """Shows progress in the bar and remarks above it."""

    def __init__(self, bar: "Bar", *, quiet: bool) -> None:
        self._bar, self._quiet = bar, quiet
        self._task = bar.add_task("collect", total=None, speed="–")

    def __call__(self, message: "Progress | Remark") -> None:
        from dspark_calib.collection.messages import Remark

        if isinstance(message, Remark):
            say(message.text, quiet=self._quiet)
        else:
            self._bar.update(
                self._task,
                total=message.prompts,
                completed=message.prompts_done,
                speed=f"{message.rounds_per_second:.0f}",
            )


def _server(url: str | None, model: str, responses: Path | None) -> "ServerAddress | None":
    if url is None:
        return None
    if responses is not None:
        raise typer.BadParameter("cannot stand beside --responses; name one source", param_hint="--responses-from")
    from dspark_calib.collection.responses.server import ServerAddress

    return ServerAddress(url=url, model=model)


def _print(collected: "Collected", output_format: OutputFormat, *, quiet: bool) -> None:
    trace = collected.trace
    if output_format is OutputFormat.JSON:
        print_json(
            {
                "trace": trace.name,
                "rounds": trace.num_rounds,
                "prompts": trace.provenance.prompts,
                "batches": collected.batches,
                "batches_resumed": collected.resumed,
                "findings": dict(trace.provenance.findings),
                "notes": list(trace.provenance.notes),
            }
        )
        return
    for name, count in trace.provenance.findings.items():
        warn(f"{name}: {count} of {trace.provenance.prompts} prompts", quiet=quiet)
    line = f"{trace.name}: {trace.num_rounds} rounds of {trace.provenance.prompts} prompts"
    RESULTS.print(line, markup=False, soft_wrap=True)  # a path is never broken
