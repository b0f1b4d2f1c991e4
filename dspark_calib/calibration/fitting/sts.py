"""Sequential temperature scaling (DSpark, §3.2.1): one temperature a position, left to right.

At each position the temperature that minimises the ECE of the cumulative product a_k is taken, earlier
positions fixed. The search looks at `grids`, the rule that picks among good temperatures is in `selection`,
and a position whose data cannot bear a fit keeps T = 1 and says why.
"""

from collections.abc import Callable

import numpy as np

from dspark_calib.calibration.fitting.fit_record import Objective, PositionFit, Selection, TemperatureFit
from dspark_calib.calibration.fitting.grids import at_edge
from dspark_calib.calibration.fitting.identifiability import PositionFacts, survey_positions
from dspark_calib.calibration.fitting.objective import evaluate_totals
from dspark_calib.calibration.fitting.search import search
from dspark_calib.calibration.fitting.selection import choose
from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.metrics.bins import DEFAULT_BINS


def fit_sts(
    rows: FitRows,
    *,
    objective: Objective = "ece",
    select: Selection = "parsimonious",
    bins: int = DEFAULT_BINS,
    seed: int = 0,
    details: bool = True,
    told: Callable[[int], None] | None = None,
) -> TemperatureFit:
    """Fit all positions of a block, left to right.

    Args:
        rows: The rows to fit on; left at the end of the block.
        objective: What to minimise.
        select: `parsimonious` or `paper`.
        bins: Of the ECE.
        seed: Of the replicates behind selection and intervals.
        details: Whether intervals and curves are wanted, or the temperatures alone, which are the same.
        told: Called with the number of positions done.
    """
    rows.restart()
    facts = survey_positions(rows)
    positions = []
    for k in range(rows.gamma):
        fit = fit_position(rows, facts[k], objective=objective, select=select, bins=bins, seed=seed, details=details)
        rows.fix(fit.temperature)
        positions.append(fit)
        if told is not None:
            told(k + 1)
    return TemperatureFit(
        positions=tuple(positions), objective=objective, grid="default", select=select, view=rows.view
    )


def fit_position(
    rows: FitRows,
    facts: PositionFacts,
    *,
    objective: Objective,
    select: Selection,
    bins: int,
    seed: int,
    details: bool = True,
) -> PositionFit:
    """Fit the position at hand, or keep T = 1 where its data cannot bear a fit."""
    flags = facts.flags
    if flags or (select == "parsimonious" and not facts.needs_temperature):
        return _kept(rows, facts, objective, bins)
    target = facts.likely_temperature
    found = search(rows, objective, select, bins, target=target, seed=seed, details=details)
    choice = choose(found.candidates, rows.hashes, select, seed, target, interval=details)
    values = dict(zip(found.candidates.temperatures.tolist(), found.candidates.objective.tolist(), strict=True))
    return PositionFit(
        position=rows.position + 1,
        temperature=choice.temperature,
        best_temperature=found.best,
        interval=choice.interval,
        objective_before=values[1.0],
        objective_after=values[choice.temperature],
        flags=("at_grid_edge",) if at_edge(found.best) else (),
        n=facts.n,
        positives=facts.positives,
        curve=found.curve if details else (),
    )


def _kept(rows: FitRows, facts: PositionFacts, objective: Objective, bins: int) -> PositionFit:
    value = _objective_at(rows, objective, 1.0, bins) if facts.n else None
    return PositionFit(
        position=rows.position + 1,
        temperature=1.0,
        best_temperature=1.0,
        interval=None,
        objective_before=value,
        objective_after=value,
        flags=("kept_at_identity", *facts.flags),
        n=facts.n,
        positives=facts.positives,
    )


def _objective_at(rows: FitRows, objective: Objective, temperature: float, bins: int) -> float:
    return float(evaluate_totals(rows, objective, np.array([temperature]), bins)[0])
