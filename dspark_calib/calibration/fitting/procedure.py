"""How temperatures are fitted on any rows: the same for all prompts and without a fold."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dspark_calib.calibration.fitting.fit_record import Grid, Objective, PositionFit, Selection, TemperatureFit
from dspark_calib.calibration.fitting.joint import refine_jointly
from dspark_calib.calibration.fitting.objective import evaluate_totals
from dspark_calib.calibration.fitting.reference_fitters import fit_reference, reference_rule
from dspark_calib.calibration.fitting.sts import fit_sts
from dspark_calib.calibration.rows.fit_rows import FitRows
from dspark_calib.metrics.bins import DEFAULT_BINS
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.scored_rows import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """How temperatures are fitted on any rows: the same for all prompts and without a fold.

    Attributes:
        objective: What to minimise.
        grid: `default`, or `sglang` or `deepspec` to reproduce those fitters.
        select: Rule among good temperatures.
        joint: Whether a joint refinement follows the sequential pass.
        bins: Of the ECE.
        seed: Of the replicates.
    """

    objective: Objective = "ece"
    grid: Grid = "default"
    select: Selection = "parsimonious"
    joint: bool = False
    bins: int = DEFAULT_BINS
    seed: int = 0

    def view(self, judged: JudgedTrace) -> View:
        """Return the view a fit looks at.

        Rounds cut by a scheduler carry valid labels in the conditional view only. The likelihood of accepted lengths
        is a product over judged drafts, so `nll` looks at them too. Other fitters' rules know one view alone.
        """
        if self.grid != "default":
            return "cumulative"
        return "conditional" if judged.acceptance.censored or self.objective == "nll" else "cumulative"

    @property
    def all_rows(self) -> bool:
        """Whether positions without a label count as rejected."""
        return self.grid != "default" and reference_rule(self.grid).all_rows

    def temperatures(self, judged: JudgedTrace, view: View, members: npt.NDArray[np.bool_]) -> tuple[float, ...]:
        """Fit the clusters marked, bool [C], without intervals."""
        return self(FitRows(judged, view, members, all_rows=self.all_rows), details=False).temperatures

    def __call__(
        self, rows: FitRows, *, details: bool = True, told: Callable[[int], None] | None = None
    ) -> TemperatureFit:
        """Fit on the rows given.

        Args:
            rows: The rows.
            details: Whether intervals and curves are wanted.
            told: Called with the number of positions done.
        """
        if self.grid != "default":
            return fit_reference(rows, self.grid)
        fit = fit_sts(
            rows,
            objective=self.objective,
            select=self.select,
            bins=self.bins,
            seed=self.seed,
            details=details,
            told=told,
        )
        return self._refined(rows, fit) if self.joint else fit

    def _refined(self, rows: FitRows, fit: TemperatureFit) -> TemperatureFit:
        movable = tuple("kept_at_identity" not in p.flags for p in fit.positions)
        refined = refine_jointly(
            rows.sample(), rows.hashes, fit.temperatures, bins=self.bins, seed=self.seed, movable=movable
        )
        if refined == fit.temperatures:
            return replace(fit, joint=True)
        rows.restart()
        positions = []
        for position, temperature in zip(fit.positions, refined, strict=True):
            positions.append(self._moved(rows, position, temperature))
            rows.fix(temperature)
        return replace(fit, positions=tuple(positions), joint=True)

    def _moved(self, rows: FitRows, position: PositionFit, temperature: float) -> PositionFit:
        """Return the fit of the position at hand with another temperature, and earlier ones as they are now."""
        if not position.n:
            return position
        before, after = evaluate_totals(rows, self.objective, np.array([1.0, temperature]), self.bins).tolist()
        interval = position.interval
        if interval is not None:  # that of the sequential pass, widened to hold what is taken
            interval = min(interval[0], temperature), max(interval[1], temperature)
        return replace(
            position, temperature=temperature, interval=interval, objective_before=before, objective_after=after
        )
