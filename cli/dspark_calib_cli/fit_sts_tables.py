"""The tables `fit-sts` prints; every number comes from the calibration as it stands."""

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from dspark_calib_cli.console import RESULTS, print_table

if TYPE_CHECKING:
    from dspark_calib.calibration.file import Calibration
    from dspark_calib.calibration.fitting.fit_record import PositionFit
    from dspark_calib.calibration.tables import HeldOut
    from dspark_calib.metrics.estimate import Estimate

_HOW = {"out_of_fold": "held out by prompt", "in_sample": "in-sample", "independent": "other trace"}


def print_calibration(calibration: "Calibration") -> None:
    """Print the temperatures with their measures before and after, what else would reach, and the decision."""
    if calibration.fit is not None and calibration.held_out is not None:
        print_table(_positions(calibration.fit.positions, calibration.held_out, _cross_fits(calibration)))
        for remark in _remarks(calibration.fit.positions):
            RESULTS.print(remark, markup=False)
    if calibration.baselines:
        print_table(_baselines(calibration))
    if calibration.transfer is not None:
        print_table(_transfer(calibration))
    numbers = ", ".join(f"{t:.4g}" for t in calibration.temperatures)
    RESULTS.print(f"temperatures: {numbers}", markup=False)
    if calibration.reason:
        RESULTS.print(calibration.reason, markup=False)


def _cross_fits(calibration: "Calibration") -> tuple[str, ...]:
    """Return the smallest and largest T of each position without a fold; empty where every fit found the same."""
    if calibration.cross_fit is None:
        return ()
    spread = [calibration.cross_fit.spread(k + 1) for k in range(calibration.gamma)]
    return tuple(f"{low:.2f}-{high:.2f}" for low, high in spread) if any(a != b for a, b in spread) else ()


def _positions(fits: "tuple[PositionFit, ...]", held_out: "HeldOut", cross_fits: tuple[str, ...]) -> Table:
    table = Table(title=f"ECE before and after, {_HOW[held_out.evaluation]}", box=SIMPLE_HEAD, pad_edge=False)
    spread = ("cross-fits",) if cross_fits else ()
    for name in ("k", "rounds", "T", "95 % of T", *spread, "before", "after", "95 % of after", "floor"):
        table.add_column(name, justify="right", no_wrap=True)
    for k, fit in enumerate(fits):
        table.add_row(
            str(fit.position),
            str(fit.n),
            f"{fit.temperature:.3f}",
            "-" if fit.interval is None else f"{fit.interval[0]:.2f}-{fit.interval[1]:.2f}",
            *cross_fits[k : k + 1],
            _number(held_out.ece_before[k].value),
            _number(held_out.ece_after[k].value) + ("*" if held_out.at_floor[k] else " "),
            _range(held_out.ece_after[k]),
            _number(held_out.ece_floor[k]),
        )
    if any(held_out.at_floor):
        table.caption = "* at the noise floor: not to be told from perfect calibration"
    return table


def _remarks(fits: "tuple[PositionFit, ...]") -> list[str]:
    return [f"position {f.position}: {', '.join(f.flags).replace('_', ' ')}" for f in fits if f.flags]


def _baselines(calibration: "Calibration") -> Table:
    how = "in-sample" if calibration.cross_fit is None else "held out by prompt"
    table = Table(title=f"ECE of other ways, {how}", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("way")
    for k in range(calibration.gamma):
        table.add_column(str(k + 1), justify="right")
    for baseline in calibration.baselines:
        table.add_row(baseline.name, *(_number(value) for value in baseline.ece))
    return table


def _transfer(calibration: "Calibration") -> Table:
    table = Table(title="mean ECE: fitted on the row, judged on the column", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("fitted on")
    transfer = calibration.transfer
    if transfer is None:
        return table
    for name in transfer.groups:
        table.add_column(name, justify="right")
    for name, row in zip(transfer.groups, transfer.mean_ece, strict=True):
        table.add_row(name, *(_number(value) for value in row))
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _range(estimate: "Estimate") -> str:
    if estimate.low is None or estimate.high is None:
        return "-"
    return f"{estimate.low:.4f}-{estimate.high:.4f}"
