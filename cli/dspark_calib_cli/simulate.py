"""`simulate`: replay verification policies on a trace and say what calibration is worth."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from dspark_calib_cli.console import print_json, progress_bar, say, warn
from dspark_calib_cli.number_lists import whole_numbers
from dspark_calib_cli.options import (
    DEFAULT_CALIBRATION,
    DEFAULT_TRACE,
    CalibrationOption,
    Config,
    Format,
    OutputFormat,
    Overwrite,
    Quiet,
    Seed,
    TraceFolder,
)
from dspark_calib_cli.simulation_tables import print_simulation

Sps: TypeAlias = Annotated[
    Path, typer.Option("--sps", metavar="FILE", help="Speed curve: of profile-sps, SGLang, DeepInfer or CSV.")
]
Concurrency: TypeAlias = Annotated[str, typer.Option("--concurrency", metavar="R,R,…", help="Requests in every step.")]
Policies: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        metavar="POLICY",
        help="fixed, fixed:LENGTH, threshold:C (on c_k), survival:A (on a_k), algorithm1, search, deepinfer.",
        show_default="fixed, algorithm1, search, deepinfer",
    ),
]
MinUserSpeed: TypeAlias = Annotated[
    float | None,
    typer.Option("--min-user-speed", metavar="X", min=0.0, help="Tokens per second that every user must get."),
]
Requests: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--requests", metavar="N", min=1, help="Requests to finish.", show_default="every response, at least 2·R"
    ),
]
Refit: TypeAlias = Annotated[
    bool, typer.Option("--refit/--no-refit", help="Fit temperatures on the rounds that the recommended policies visit.")
]
RefitOut: TypeAlias = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="With --refit and one concurrency: where its calibration goes."),
]


def simulate(
    sps: Sps,
    trace: TraceFolder = DEFAULT_TRACE,
    calibration: CalibrationOption = None,
    concurrency: Concurrency = "1,8,64,256",
    policy: Policies = None,
    min_user_speed: MinUserSpeed = None,
    requests: Requests = None,
    refit: Refit = False,
    out: RefitOut = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    output: Format = OutputFormat.TEXT,
    quiet: Quiet = False,
    config: Config = None,  # noqa: ARG001 - read by the app before the command runs
) -> None:
    """Replay verification policies on a trace and say what calibration is worth in tokens per second.

    The trace must hold every anchor (collect --anchors all); a loop trace replays full verification only.

    Example: dspark-calib simulate trace-all --sps sps.json --concurrency 1,8,64 --min-user-speed 40
    """
    loads = whole_numbers(concurrency, "--concurrency")
    if out is not None and (not refit or len(loads) != 1):
        raise typer.BadParameter("expected --refit and a single --concurrency beside it", param_hint="--out")
    from dspark_calib.calibration.file import read_calibration, write_calibration
    from dspark_calib.scheduling.curve_files import read_curve, refuse_existing
    from dspark_calib.scheduling.policy_calibration_file import calibration_for_policy
    from dspark_calib.scheduling.simulate_trace import refit_recommended, simulate_trace
    from dspark_calib.trace import open_trace

    if out is not None:
        refuse_existing(out, overwrite=overwrite)
    file = calibration or (DEFAULT_CALIBRATION if DEFAULT_CALIBRATION.is_file() else None)
    curve, recorded = read_curve(sps), open_trace(trace)
    temperatures = None if file is None else read_calibration(file)
    with progress_bar(quiet=quiet, unit="replays") as progress:
        task = progress.add_task("replaying", total=None, speed="")
        result = simulate_trace(
            recorded,
            curve,
            temperatures,
            concurrencies=loads,
            policies=policy or (),
            min_user_speed=min_user_speed,
            requests=requests,
            seed=seed,
            on_replay=lambda done, total: progress.update(task, completed=done, total=total),
        )
        if refit:
            task = progress.add_task("fitting for the policy", total=None, speed="")
            result = refit_recommended(recorded, result, seed=seed, on_pass=lambda: progress.advance(task))
    if out is not None:
        write_calibration(out, calibration_for_policy(recorded, result.policy_calibrations[0]), overwrite=overwrite)
        say(f"wrote {out}", quiet=quiet)
    for message in result.warnings:
        warn(message, quiet=quiet)
    if output is OutputFormat.JSON:
        print_json(result.to_dict())
    else:
        print_simulation(result)
