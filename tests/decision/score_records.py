"""Evaluations made by hand, so that a test knows what a gate is told."""

from collections.abc import Sequence

import numpy as np

from dspark_calib.calibration import Evaluation, GroupScores
from dspark_calib.metrics import Acceptance, Estimate, PositionScores, ScoreChange, ScoreDraws, Scores
from dspark_calib.metrics.bins import BinSums

UNDEFINED = Estimate(value=None)
DRAWS = 50


def estimate(value: float | None, se: float | None = 0.001) -> Estimate:
    """Return an estimate; its interval plays no part in a gate."""
    return Estimate(value=value, se=se)


def position(
    k: int,
    ece: Estimate,
    *,
    floor: float | None = 0.0,
    n: int = 1000,
    bias: Estimate = UNDEFINED,
    auroc: Estimate = UNDEFINED,
    missing: str | None = None,
) -> PositionScores:
    """Return the scores of one position."""
    zeros = np.zeros(20)
    bins = BinSums(edges=np.linspace(0, 1, 21), n=zeros.astype(np.int64), predicted_sum=zeros, observed_sum=zeros)
    return PositionScores(
        position=k,
        n=n,
        positives=n / 2,
        clusters=20,
        predicted_sum=n / 2,
        ece=ece,
        ece_floor=floor,
        ece_floor_high=floor,
        ece_at_floor=False,
        ece_squared_debiased=None,
        smooth_ece=None,
        bias=bias,
        brier=UNDEFINED,
        log_loss=UNDEFINED,
        auroc=auroc,
        corp=None,
        bins=bins,
        missing=missing,
    )


def scores(positions: Sequence[PositionScores], ece_draws: np.ndarray | None = None) -> Scores:
    """Return the scores of all positions."""
    blank = np.zeros((DRAWS, len(positions)))
    draws = ScoreDraws(
        ece=blank if ece_draws is None else ece_draws,
        bias=blank,
        brier=blank,
        mean_ece=np.zeros(DRAWS),
        auroc_moves=(None,) * blank.shape[1],
    )
    return Scores(
        cumulative=tuple(positions), conditional=tuple(positions), mean_ece=UNDEFINED, mean_ece_floor=None, draws=draws
    )


def group(
    name: str,
    raw: Scores,
    calibrated: Scores | None = None,
    *,
    brier_change: Sequence[Estimate] | None = None,
    length: Estimate = UNDEFINED,
    rounds: int = 1000,
) -> GroupScores:
    """Return one group."""
    gamma = len(raw.cumulative)
    blank = (UNDEFINED,) * gamma
    change = None
    if brier_change is not None:
        change = ScoreChange(ece=blank, bias=blank, brier=tuple(brier_change), auroc=blank, mean_ece=UNDEFINED)
    acceptance = Acceptance(
        prefix=blank, conditional=blank, judged=(0,) * gamma, accepted_length=length, lengths=(0,) * (gamma + 1)
    )
    return GroupScores(
        name=name, rounds=rounds, prompts=20, raw=raw, calibrated=calibrated, change=change, acceptance=acceptance
    )


def evaluation(*groups: GroupScores, how: str | None = None, warnings: tuple[str, ...] = ()) -> Evaluation:
    """Return an evaluation of these groups."""
    return Evaluation(
        evaluation=how,  # type: ignore[arg-type]
        groups=groups,
        clusters="prompts",
        bins=20,
        draws=DRAWS,
        seed=0,
        censored=0,
        warnings=warnings,
    )
