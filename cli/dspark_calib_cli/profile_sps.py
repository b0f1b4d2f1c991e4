"""`profile-sps`: measure steps per second against verified tokens."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from dspark_calib_cli.console import RESULTS, print_json, progress_bar, say
from dspark_calib_cli.number_lists import whole_numbers
from dspark_calib_cli.options import Config, Format, OutputFormat, Overwrite, Quiet

if TYPE_CHECKING:
    from dspark_calib.scheduling.curve import SpsCurve


class Layout(StrEnum):
    """Who reads the curve."""

    OWN = "dspark-calib"
    SGLANG = "sglang"
    DEEPINFER = "deepinfer"
    CSV = "csv"


def profile_sps(
    target: Annotated[
        str, typer.Option("--target", metavar="NAME|FOLDER", help="Target: hub name, folder or GGUF file.")
    ],
    batch_sizes: Annotated[
        str, typer.Option("--batch-sizes", metavar="B,B,…", help="Verified tokens of a step, all requests together.")
    ] = "1,2,4,8,16,32,64,128,256,512",
    context: Annotated[int, typer.Option("--context", min=1, help="Cached tokens of every request.")] = 512,
    query_length: Annotated[
        int, typer.Option("--query-length", min=1, help="Most tokens a request brings to a step, 1 + γ.")
    ] = 8,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Samples of each point.")] = 20,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where the curve goes.")] = Path("sps.json"),
    layout: Annotated[
        Layout, typer.Option("--layout", help="Format of the file; only dspark-calib keeps the samples.")
    ] = Layout.OWN,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, …")] = "auto",
    dtype: Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")] = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code/--no-trust-remote-code", help="Run code that lies with the model.")
    ] = False,
    output: Format = OutputFormat.TEXT,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    config: Config = None,  # noqa: ARG001 - read by the app before the command runs
) -> None:
    """Measure steps per second against verified tokens for a target on the device at hand.

    Each point is a decode forward of R requests over a filled KV cache; on a GPU it is replayed from a CUDA graph.

    Example: dspark-calib profile-sps --target Qwen/Qwen3-4B --batch-sizes 1,2,4,8 --context 64 --repeats 3
    """
    sizes = whole_numbers(batch_sizes, "--batch-sizes")
    from dspark_calib.collection.target import find_target, load_target
    from dspark_calib.scheduling.curve_files import own_form, refuse_existing, write_curve
    from dspark_calib.scheduling.profile import profile_target

    refuse_existing(out, overwrite=overwrite)
    model = load_target(find_target(target, trust_remote_code=trust_remote_code), device, dtype)
    with progress_bar(quiet=quiet, unit="points") as progress:
        task = progress.add_task("profiling", total=len(set(sizes)), speed="")
        curve = profile_target(
            model,
            target=target,
            batch_sizes=sizes,
            context=context,
            query_length=query_length,
            repeats=repeats,
            on_point=lambda _: progress.advance(task),
        )
    path = write_curve(curve, out, layout=layout.value, overwrite=overwrite)
    if output is OutputFormat.JSON:
        print_json(own_form(curve))
    else:
        RESULTS.print(_table(curve))
    say(f"wrote {path}", quiet=quiet)


def _table(curve: "SpsCurve") -> Table:
    table = Table("verified tokens", "ms a step", "steps/s", "tokens/s if all were accepted", title="Steps per second")
    for point in curve.points():
        table.add_row(
            f"{point.tokens}", f"{point.step_ms:.2f}", f"{point.steps_per_second:.1f}", f"{point.tokens_per_second:.0f}"
        )
    return table
