"""Measures of calibration and rank, their mergeable sums and their prompt-clustered uncertainty.

From arrays: `ece`, `smooth_ece`, `proper`, `ranking`, `corp`. From a trace: `rows` reads it and runs passes over it,
`sums` accumulates, `scoring` turns sums into `scores`, `bootstrap` weighs prompts.
"""

from dspark_calib.metrics.acceptance import Acceptance, compute_acceptance
from dspark_calib.metrics.bins import BinSums
from dspark_calib.metrics.bootstrap import bootstrap_weights, cluster_hashes
from dspark_calib.metrics.corp import Decomposition, compute_corp
from dspark_calib.metrics.ece import compute_ece, compute_noise_floor, compute_reliability
from dspark_calib.metrics.estimate import UNDEFINED, Estimate
from dspark_calib.metrics.proper import compute_brier, compute_log_loss
from dspark_calib.metrics.ranking import compute_auroc
from dspark_calib.metrics.scores import PositionScores, ScoreChange, ScoreDraws, Scores
from dspark_calib.metrics.smooth_ece import compute_smooth_ece

__all__ = [
    "UNDEFINED",
    "Acceptance",
    "BinSums",
    "Decomposition",
    "Estimate",
    "PositionScores",
    "ScoreChange",
    "ScoreDraws",
    "Scores",
    "bootstrap_weights",
    "cluster_hashes",
    "compute_acceptance",
    "compute_auroc",
    "compute_brier",
    "compute_corp",
    "compute_ece",
    "compute_log_loss",
    "compute_noise_floor",
    "compute_reliability",
    "compute_smooth_ece",
]
