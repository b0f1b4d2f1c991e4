"""What to conclude, chosen by rule: plain sentences over a report's record, without markup.

Every sentence states what the numbers allow and no more: an interval that holds zero is "cannot be
told apart", an ECE at its noise floor is said to be there, and what is missing is said to be missing.
"""

from dspark_calib.calibration.tables import Baseline
from dspark_calib.metrics.estimate import Estimate
from dspark_calib.summary.contrasts import Comparison, Throughput
from dspark_calib.summary.details import Drafter, Proxy, Slices, TemperatureCurve, Transfer
from dspark_calib.summary.measures import Group, Measures, PositionMeasures
from dspark_calib_reports.figures.comparison import row_name
from dspark_calib_reports.figures.slices import TITLES, cell_name
from dspark_calib_reports.numerals import (
    count,
    decimal,
    fraction,
    interval,
    percent,
    shown_name,
    signed,
    with_interval,
)


def state_ece(group: Group) -> str:
    """Say where the error is largest and which positions have reached the floor."""
    judged, label = _judged(group)
    rows = [row for row in judged.positions if row.ece.value is not None]
    if not rows:
        return f"No position has a defined ECE ({_missing(judged)})."
    worst = max(rows, key=_ece)
    floor = [row.position for row in rows if row.ece_at_floor]
    lead = f"Largest {label} ECE: {with_interval(worst.ece)} at position {worst.position}"
    raw = group.raw.positions[worst.position - 1].ece.value
    before = f", raw {fraction(raw)}" if group.calibrated is not None else ""
    if not floor:
        return f"{lead}{before}; no position has reached its noise floor."
    return f"{lead}{before}; at the noise floor: {_positions(floor, len(rows))}."


def state_reliability(raw: PositionMeasures, calibrated: PositionMeasures | None) -> str:
    """Say what one position's diagram shows."""
    if raw.missing and raw.ece.value is None:
        return raw.missing
    after = f" → {fraction(calibrated.ece.value)}" if calibrated else ""
    return f"ECE {fraction(raw.ece.value)}{after}, n {count(raw.n)}, {_direction(raw.bias)}"


def state_all_reliability(group: Group) -> str:
    """Say what the diagrams show together."""
    ways = [_direction(row.bias) for row in group.raw.positions if row.bias.value is not None]
    if not ways:
        return f"Nothing to compare ({_missing(group.raw)})."
    over, under = ways.count("overconfident"), ways.count("underconfident")
    lead = f"Raw confidences are overconfident at {over} and underconfident at {under} of {len(ways)} positions"
    if group.calibrated is None:
        return f"{lead}."
    floor = sum(1 for row in group.calibrated.positions if row.ece_at_floor)
    return f"{lead}; calibrated, {floor} of {len(ways)} cannot be told from perfect calibration."


def state_bias(group: Group) -> str:
    """Say in which direction the confidences err, before and after."""
    judged, label = _judged(group)
    rows = [row for row in judged.positions if row.bias.value is not None]
    if not rows:
        return f"No position has a defined bias ({_missing(judged)})."
    worst = max(rows, key=lambda row: abs(row.bias.value or 0.0))
    clear = [row.position for row in rows if _direction(row.bias) != "no clear bias"]
    where = f"clear of zero at {_positions(clear, len(rows))}" if clear else "nowhere clear of zero"
    size = f"{signed(worst.bias.value)} {interval(worst.bias)}"
    return f"Largest {label} bias: {size} at position {worst.position}; {where}."


def state_auroc(group: Group) -> str:
    """Say how well the confidences rank, and whether calibration moved it."""
    rows = [row for row in group.raw.positions if row.auroc.value is not None]
    if not rows:
        return f"No position has a defined AUROC ({_missing(group.raw)})."
    values = [row.auroc.value or 0.0 for row in rows]
    lead = (
        f"Survival ranks accepted above rejected prefixes with AUROC {fraction(min(values))} to {fraction(max(values))}"
    )
    below = [row.position for row in rows if row.auroc.high is not None and row.auroc.high < 0.5]
    if below:
        return f"{lead}; below ½ at {_positions(below, len(rows))}: the order is inverted there."
    return f"{lead} (½ is guessing)."


def state_proxies(group: Group, proxies: tuple[Proxy, ...]) -> str:
    """Say whether the confidence beats what comes for free."""
    best: list[str] = []
    for proxy in proxies:
        rows = zip(group.raw.positions, proxy.auroc_conditional, strict=True)
        clear = [row.position for row, free in rows if _below(free, row.auroc_conditional)]
        name = proxy.name.replace("_", " ").replace("prob", "probability")
        best.append(f"{name} at {len(clear)} of {len(proxy.auroc_conditional)} positions")
    return f"With the prefix given, the confidence ranks clearly better than {', '.join(best)}."


def state_corp(group: Group) -> str:
    """Say what recalibration could still remove."""
    judged, label = _judged(group)
    rows = [row for row in judged.positions if row.corp is not None]
    if not rows:
        return f"No position could be decomposed ({_missing(judged)})."
    worst = max(rows, key=lambda row: row.corp.miscalibration if row.corp else 0.0)
    left = worst.corp.miscalibration if worst.corp else None
    most = f"at most {fraction(left, 4)} (position {worst.position})"
    return f"Any monotone recalibration could lower the {label} Brier score by {most}."


def state_curves(curves: tuple[TemperatureCurve, ...]) -> str:
    """Say which temperatures the data pin down."""
    flagged = [curve.position for curve in curves if curve.flags]
    if flagged:
        return f"Flagged by the fit: {_positions(flagged, len(curves))}; the table of temperatures says why."
    return "Every temperature lies inside its valley; the shaded strip is its 95 % interval, the dotted line T = 1."


def state_baselines(baselines: tuple[Baseline, ...]) -> str:
    """Say at how many positions another way of fitting does better than the shipped one."""
    shipped = next((b for b in baselines if b.name == "sts"), None)
    if shipped is None:
        return "Held-out ECE of other ways of fitting."
    counts = []
    for other in baselines:
        pairs = [(a, b) for a, b in zip(other.ece, shipped.ece, strict=True) if a is not None and b is not None]
        if other is not shipped:
            counts.append(f"{other.name} at {sum(1 for a, b in pairs if a < b)}")
    return (
        f"Positions where another way has a smaller held-out ECE than STS: {', '.join(counts)} of {len(shipped.ece)}."
    )


def state_groups(groups: tuple[Group, ...]) -> str:
    """Name the worst group and position, and the best and worst accepted length."""
    cells = [
        (row.ece.value, group, row.position)
        for group in groups
        for row in _judged(group)[0].positions
        if row.ece.value is not None
    ]
    if not cells:
        return "No group has a defined ECE."
    value, group, position = max(cells, key=lambda cell: cell[0])
    label = _judged(group)[1]
    return (
        f"Worst {label} ECE: {fraction(value)} in {shown_name(group.name)} at position {position} "
        f"({count(_judged(group)[0].positions[position - 1].n)} rounds)."
    )


def state_transfer(transfer: Transfer) -> str:
    """Say what is lost when one group's temperatures serve another."""
    cells = [
        (value, fitted, judged)
        for fitted, row in zip(transfer.fitted_on, transfer.mean_ece, strict=True)
        for judged, value in zip(transfer.judged_on, row, strict=True)
        if value is not None and fitted != judged
    ]
    if not cells:
        return "There is only one group, so nothing to transfer."
    value, fitted, judged = max(cells)
    return (
        f"Worst transfer: fitted on {shown_name(fitted)}, judged on {shown_name(judged)}, mean ECE {fraction(value)}."
    )


def state_slices(all_slices: tuple[Slices, ...]) -> str:
    """Name the cell with the largest bias that is clear of zero."""
    cells = [
        (abs(estimate.value), slices, cell, estimate)
        for slices in all_slices
        for cell in slices.cells
        for estimate in [cell.raw_bias if cell.calibrated_bias.value is None else cell.calibrated_bias]
        if estimate.value is not None and _direction(estimate) != "no clear bias"
    ]
    if not cells:
        return "In no slice is the bias clear of zero."
    _, slices, cell, estimate = max(cells, key=lambda item: item[0])
    where = f"{TITLES[slices.quantity].partition(',')[0]} {cell_name(slices, cell)}"
    return f"Largest bias clear of zero: {signed(estimate.value)} {interval(estimate)} at {where}."


def state_acceptance(drafters: tuple[Drafter, ...]) -> str:
    """Say how acceptance runs along the block, and who leads."""
    first = drafters[0]
    rates = [(k, rate.value) for k, rate in enumerate(first.acceptance.conditional) if rate.value is not None]
    if not rates:
        return "Nothing was judged."
    last, rate = rates[-1]
    judged = count(first.acceptance.judged[last])
    ends = f"{percent(rates[0][1])} at position 1, {percent(rate)} at {last + 1} ({judged} drafts judged there)"
    lead = f"{shown_name(first.name)}: conditional acceptance {ends}"
    if len(drafters) == 1:
        return f"{lead}."
    best = max(drafters, key=lambda d: d.acceptance.accepted_length.value or 0.0)
    tau = decimal(best.acceptance.accepted_length.value)
    return f"{lead}; longest accepted length: {shown_name(best.name)} with τ = {tau}."


def state_lengths(drafters: tuple[Drafter, ...]) -> str:
    """Say what a round yields and how often nothing or everything is accepted."""
    first = drafters[0].acceptance
    tau = f"τ = {decimal(first.accepted_length.value)} {interval(first.accepted_length, 2)} tokens per round"
    return f"{tau}; {count(first.lengths[0])} rounds accepted no draft, {count(first.lengths[-1])} the whole block."


def state_sweep(groups: tuple[Group, ...]) -> str:
    """Say what a threshold buys in the whole trace."""
    sweep = groups[0].sweep
    if sweep is None:
        return "No sweep."
    first, last = sweep.raw[0], sweep.raw[-1]
    return (
        f"Cutting blocks at the first c_k below {decimal(last.threshold, 1)} raises the acceptance rate from "
        f"{percent(first.acceptance_rate)} to {percent(last.acceptance_rate)} and lowers tokens per step from "
        f"{decimal(first.accepted)} to {decimal(last.accepted)}."
    )


def state_comparison(comparison: Comparison) -> str:
    """Say how much got worse and what leads."""
    worse = [row for row in comparison.rows if row.change == "worse"]
    better = sum(1 for row in comparison.rows if row.change == "better")
    kind = "paired by prompt" if comparison.paired else "unpaired"
    against = (
        f"Against {shown_name(comparison.old)} ({kind}): {len(worse)} worse, {better} better, of {len(comparison.rows)}"
    )
    if not worse:
        return f"{against}; nothing got clearly worse."
    first = worse[0]
    return f"{against}; worst first: {row_name(first)}, {signed(first.difference.value)} {interval(first.difference)}."


def state_throughput(runs: tuple[Throughput, ...]) -> str:
    """Say what the temperatures are worth at the highest load."""
    top = max(run.concurrency for run in runs)
    at_top = [run for run in runs if run.concurrency == top]
    fastest = max((run for run in at_top if run.confidences != "oracle"), key=_speed)
    same = [run for run in at_top if run.policy == fastest.policy]
    speeds = ", ".join(f"{run.confidences} {decimal(run.tokens_per_second.value, 0)}" for run in same)
    return f"Fastest at {top} requests: {shown_name(fastest.policy)}, in tokens per second {speeds}."


def _speed(run: Throughput) -> float:
    return run.tokens_per_second.value or 0.0


def _judged(group: Group) -> tuple[Measures, str]:
    return (group.raw, "raw") if group.calibrated is None else (group.calibrated, "calibrated")


def _ece(row: PositionMeasures) -> float:
    return row.ece.value or 0.0


def _missing(measures: Measures) -> str:
    return ", ".join(sorted({row.missing for row in measures.positions if row.missing})) or "no rounds"


def _direction(bias: Estimate) -> str:
    if bias.low is not None and bias.low > 0:
        return "overconfident"
    if bias.high is not None and bias.high < 0:
        return "underconfident"
    return "no clear bias"


def _below(free: Estimate, head: Estimate) -> bool:
    return free.high is not None and head.low is not None and free.high < head.low


def _positions(positions: list[int], total: int) -> str:
    if len(positions) == total:
        return f"all {total} positions" if total > 1 else "the only position"
    return f"position{'s' if len(positions) > 1 else ''} {', '.join(map(str, positions))}"
