"""Held out by prompt, a fit does not make a calibrated head worse, and mends a bad one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_calib.calibration import FitRows, fit_sts
from dspark_calib.calibration.fitting.fit_record import Grid
from dspark_calib.calibration.fitting.procedure import Procedure
from dspark_calib.metrics import compute_ece, compute_noise_floor, compute_reliability
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.survival import prefix_labels, prefix_survival
from dspark_calib.trace import Trace, open_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

RECORDED = Path(__file__).parents[1] / "data" / "traces" / "demo"


class Splits:
    """A trace split at random by prompt: fitted on one half, judged on the other."""

    def __init__(self, trace: Trace) -> None:
        self.judged = JudgedTrace(trace)
        batches = list(self.judged.batches())
        self.z = np.concatenate([b.logits for b in batches]).astype(float)
        self.y = prefix_labels(np.concatenate([b.accepted for b in batches]), trace.gamma)
        self.observed = np.concatenate([b.observed for b in batches])
        self.cluster = np.concatenate([b.cluster for b in batches])

    def mean_ece(self, rows: Any, temperatures: Sequence[float] | None) -> float:
        """Mean ECE over positions."""
        a = prefix_survival(self.z[rows], temperatures)
        seen = self.observed[rows]
        columns = range(a.shape[1])
        return float(np.mean([compute_ece(a[seen > k, k], self.y[rows][seen > k, k]) for k in columns]))

    def floor(self, rows: Any) -> float:
        """Mean noise floor over positions."""
        a, seen = prefix_survival(self.z[rows]), self.observed[rows]
        sums = [compute_reliability(a[seen > k, k], self.y[rows][seen > k, k]) for k in range(a.shape[1])]
        return float(np.mean([compute_noise_floor(s) for s in sums]))

    def run(self, splits: int, grid: Grid = "default") -> np.ndarray:
        """Return, per split: change of held-out mean ECE, raw ECE, floor; shape [splits, 3]."""
        rng, prompts, out = np.random.default_rng(0), len(self.judged.clusters), []
        fit = Procedure(grid=grid).temperatures
        for _ in range(splits):
            half = np.zeros(prompts, bool)
            half[rng.permutation(prompts)[: prompts // 2]] = True
            temperatures = fit(self.judged, "cumulative", half)
            rows = ~half[self.cluster]
            raw = self.mean_ece(rows, None)
            out.append((self.mean_ece(rows, temperatures) - raw, raw, self.floor(rows)))
        return np.array(out)


def check(found: np.ndarray, errors: float = 0.0) -> None:
    """≤ 0 on average, 95th percentile ≤ .002, and ≤ identity in ≥ 95 % of splits with raw ECE over twice the floor.

    Where T = 1 is the truth, whoever ever leaves it loses a little on average: there `errors` allows the mean so many
    standard errors.
    """
    change, raw, floor = found.T
    assert change.mean() <= 1e-12 + errors * change.std() / np.sqrt(len(change))
    assert np.quantile(change, 0.95) <= 0.002
    bad = raw > 2 * floor
    if bad.any():
        assert (change[bad] <= 1e-12).mean() >= 0.95


def synthetic(seed: int, temperature: float, prompts: int = 70) -> Trace:
    """4,000 rounds of 70 prompts with a strong prompt effect, γ = 7."""
    rounds = synthetic_rounds(
        np.random.default_rng(seed),
        prompts=prompts,
        rounds_per_prompt=57,
        temperatures=[temperature] * 7,
        prompt_effect_sd=0.4,
        logit_mean=0.6,
        logit_sd=1.5,
    )
    return Trace.of(rounds, synthetic_provenance(7))


@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_six_splits_of_a_calibrated_and_of_an_overconfident_head(temperature: float) -> None:
    """A few splits in the normal suite."""
    check(Splits(synthetic(5, temperature)).run(6))


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.93, 1.2, 1.5])
def test_two_hundred_splits(temperature: float) -> None:
    """200 random splits by prompt of each synthetic set."""
    check(Splits(synthetic(5, temperature)).run(200), errors=2.0 if temperature == 1.0 else 0.0)


def recorded_data_sets() -> list[Trace]:
    """The data sets of the trace that the demo pair made, each by itself."""
    trace = open_trace(RECORDED)
    rounds = trace.read(optional=())
    names = rounds.dataset.names
    return [Trace.of(rounds.take(rounds.dataset.codes == i), trace.provenance, name) for i, name in enumerate(names)]


def test_ten_splits_of_each_recorded_data_set() -> None:
    """A few splits of real rounds in the normal suite."""
    for trace in recorded_data_sets():
        check(Splits(trace).run(10))


@pytest.mark.slow
def test_two_hundred_splits_of_each_recorded_data_set() -> None:
    """Real rounds: no harm on any data set, and on average over them no worse than SGLang's and DeepSpec's fits."""
    splits = [Splits(trace) for trace in recorded_data_sets()]
    ours = [each.run(200) for each in splits]
    for found in ours:
        check(found)
    mean = np.mean([found[:, 0].mean() for found in ours])
    for grid in ("sglang", "deepspec"):
        assert mean <= np.mean([each.run(200, grid)[:, 0].mean() for each in splits])


@pytest.mark.parametrize(
    ("prompts", "excess"), [(100, 0.004), pytest.param(1000, 0.0015, marks=pytest.mark.slow)], ids=["5000", "50000"]
)
def test_excess_over_the_oracle_after_fitting(prompts: int, excess: float) -> None:
    """True T 1.5, judged on 200,000 fresh rounds: excess ECE over the oracle, and ≥ 85 % of the raw excess removed."""
    truth = [1.5] * 7

    def drawn(seed: int, count: int) -> Trace:
        rounds = synthetic_rounds(np.random.default_rng(seed), prompts=count, rounds_per_prompt=50, temperatures=truth)
        return Trace.of(rounds, synthetic_provenance(7))

    temperatures = fit_sts(FitRows(JudgedTrace(drawn(1, prompts)), "cumulative")).temperatures
    fresh = Splits(drawn(2, 4000))
    everything = slice(None)
    oracle = fresh.mean_ece(everything, truth)
    raw, found = fresh.mean_ece(everything, None) - oracle, fresh.mean_ece(everything, temperatures) - oracle
    assert found <= excess
    assert found <= 0.15 * raw
