"""The fit against the paper's words in plain loops, known truth, other fitters' rules, and inputs that broke them."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dspark_calib.calibration import FitRows, fit_calibration, fit_sts
from dspark_calib.calibration.fitting import sketch as sketch_module
from dspark_calib.calibration.fitting.grids import best_index, default_grid, fine_grid
from dspark_calib.calibration.fitting.objective import evaluate_by_cluster, evaluate_totals
from dspark_calib.calibration.fitting.procedure import Procedure
from dspark_calib.calibration.fitting.search import search
from dspark_calib.calibration.fitting.selection import choose
from dspark_calib.calibration.fitting.sketch import build_sketch
from dspark_calib.errors import TraceFormatError
from dspark_calib.metrics import compute_ece
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.survival import prefix_survival
from dspark_calib.trace import Labels, Trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def trace_of(rounds: Any) -> Any:
    """Rounds as a trace in memory."""
    return Trace.of(rounds, synthetic_provenance(rounds.gamma))


def rows_of(rounds: Any, view: Any = "cumulative", **options: Any) -> Any:
    """Rounds ready to fit on."""
    return FitRows(JudgedTrace(trace_of(rounds)), view, **options)


def synthetic(
    seed: int = 0,
    prompts: Any = 40,
    each: Any = 50,
    temperatures: Any = (1.5, 1.2, 0.8),
    effect: Any = 0.3,
    mean: Any = 1.7,
) -> Any:
    """A small synthetic trace's rounds."""
    return synthetic_rounds(
        np.random.default_rng(seed),
        prompts=prompts,
        rounds_per_prompt=each,
        temperatures=list(temperatures),
        prompt_effect_sd=effect,
        logit_mean=mean,
    )


def slow_ece(probabilities: Any, labels: Any, bins: int) -> Any:
    """ECE as one would say it, row by row."""
    sums = [[0, 0.0, 0.0] for _ in range(bins)]
    for p, y in zip(probabilities, labels, strict=True):
        q = min(max(p, 1e-8), 1 - 1e-8)
        cell = sums[min(int(q * bins), bins - 1)]
        cell[0] += 1
        cell[1] += q
        cell[2] += y
    return sum(abs(p - y) for _, p, y in sums) / len(probabilities)


def slow_greedy(rounds: Any, grid: Any, bins: int, all_rows: Any) -> Any:
    """Left to right, first strict minimum of the ECE of the cumulative product, in plain loops over the grid."""
    z = rounds.confidence_logits.astype(np.float64)
    prior, raw, temperatures, eces, before = np.ones(len(z)), np.ones(len(z)), [], [], []
    for k in range(rounds.gamma):
        rows = np.ones(len(z), bool) if all_rows else rounds.observed > k
        y = (rounds.accepted > k).astype(float)
        raw = raw / (1 + np.exp(-z[:, k]))
        before.append(slow_ece(raw[rows].tolist(), y[rows].tolist(), bins))
        best, found = math.inf, 1.0
        for t in grid:
            ece = slow_ece((prior / (1 + np.exp(-z[:, k] / t)))[rows].tolist(), y[rows].tolist(), bins)
            if ece < best:
                best, found = ece, t
        temperatures.append(found)
        eces.append(best)
        prior = prior / (1 + np.exp(-z[:, k] / found))
    return temperatures, eces, before


def with_ends(rounds: Any) -> Any:
    """Some rounds end in an accepted EOS, so that positions beyond carry no label."""
    ended = np.arange(len(rounds)) % 7 == 0
    observed = np.where(ended, rounds.accepted, rounds.observed).astype(np.int16)
    after = rounds.prompt_length + rounds.response_length - 1
    return replace(rounds, observed=observed, anchor=np.where(ended, after - observed, rounds.anchor).astype(np.int32))


@pytest.fixture
def small_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sketch of fewer cells: looser bounds, the same proof."""
    monkeypatch.setattr(sketch_module, "COLUMNS", 256)
    monkeypatch.setattr(sketch_module, "ROWS", 512)


def test_default_grid_and_fine_steps() -> None:
    """2^(i/32), i = -96 … 96, then multiples of .005 within two grid steps."""
    grid = default_grid()
    assert len(grid) == 193
    assert (grid[0], grid[96], grid[-1]) == (0.125, 1.0, 8.0)
    fine = fine_grid(1.0)
    assert fine.min() >= 2 ** (-2 / 32)
    assert fine.max() <= 2 ** (2 / 32)
    assert np.allclose(np.diff(fine), 0.005)


@pytest.mark.parametrize(
    ("temperatures", "expected"),
    [
        ([0.5, 1.0, 2.0], 1.0),
        ([0.5, 2.0], 2.0),
        ([0.25, 2.0], 2.0),
        ([0.8, 4.0], 0.8),
        ([2 ** (-5 / 32), 2 ** (5 / 32)], 2 ** (5 / 32)),
    ],
)
def test_ties_go_to_the_temperature_nearest_one_then_the_larger(temperatures: Any, expected: Any) -> None:
    """Equal objectives: nearest 1 in log T, then the larger."""
    values = np.array(temperatures)
    assert values[best_index(values, np.zeros(len(values)))] == expected


def test_paper_selection_is_the_bare_minimum_of_the_papers_algorithm() -> Any:
    """The same temperatures and ECEs as plain loops over the same grid and fine steps."""
    rounds = synthetic(prompts=20, each=20)
    fit = fit_sts(rows_of(rounds), select="paper")
    z, prior = rounds.confidence_logits.astype(np.float64), np.ones(len(rounds))
    for k, position in enumerate(fit.positions):
        y = (rounds.accepted > k).astype(float).tolist()

        def ece(t: Any, k: int = k, prior: Any = prior, y: Any = y) -> Any:
            return slow_ece((prior / (1 + np.exp(-z[:, k] / t))).tolist(), y, 20)

        coarse = min(default_grid(), key=lambda t: (round(ece(t), 12), abs(math.log(t)), -t))
        best = min([*fine_grid(coarse), coarse], key=lambda t: (round(ece(t), 12), abs(math.log(t)), -t))
        assert position.temperature == pytest.approx(best, abs=1e-12)
        assert position.objective_after == pytest.approx(ece(best), abs=1e-12)
        assert position.objective_before == pytest.approx(ece(1.0), abs=1e-12)
        prior = prior / (1 + np.exp(-z[:, k] / position.temperature))


@pytest.mark.parametrize("name", ["sglang", "deepspec"])
def test_grids_of_other_fitters_reproduce_their_numbers(name: str) -> None:
    """41 float32 temperatures, 15 bins, every row; or 257 temperatures, 20 bins, observed rows: the same T and ECE."""
    rounds = with_ends(synthetic(prompts=12, each=20))
    if name == "sglang":
        grid, bins = np.logspace(-1, 1, 41).astype(np.float32).astype(float), 15
    else:
        grid, bins = np.unique(np.append(np.logspace(math.log10(0.05), math.log10(20), 256), 1.0)), 20
    procedure = Procedure(grid=name)
    fit = procedure(rows_of(rounds, all_rows=procedure.all_rows))
    temperatures, eces, before = slow_greedy(rounds, grid.tolist(), bins, name == "sglang")
    assert list(fit.temperatures) == pytest.approx(temperatures, abs=1e-12)
    assert [p.objective_after for p in fit.positions] == pytest.approx(eces, abs=1e-12)
    assert [p.objective_before for p in fit.positions] == pytest.approx(before, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "first"),
    [
        pytest.param({"accepted": 3}, 0.1, id="all accepted"),
        pytest.param({"accepted": 0}, 10.0, id="none accepted"),
        pytest.param({"logits": 0.0}, 0.1, id="all-zero logits, the first of equals"),
    ],
)
def test_what_sglang_makes_of_degenerate_input_is_reproduced_and_flagged(change: Any, first: float) -> None:
    """T runs to an end of the grid, as there; here the position says so."""
    rounds = synthetic(prompts=12, each=20)
    if "logits" in change:
        rounds = replace(rounds, confidence_logits=np.zeros_like(rounds.confidence_logits))
    else:
        rounds = replace(rounds, accepted=np.full(len(rounds), change["accepted"], np.int16))
    fit = Procedure(grid="sglang")(rows_of(rounds, all_rows=True))
    grid = np.logspace(-1, 1, 41).astype(np.float32).astype(float).tolist()
    assert list(fit.temperatures) == pytest.approx(slow_greedy(rounds, grid, 15, all_rows=True)[0], abs=1e-12)
    assert fit.temperatures[0] == pytest.approx(first)
    assert "at_grid_edge" in fit.positions[0].flags


def test_sglangs_grid_is_torchs() -> None:
    """SGLang makes its grid with float32 torch.logspace; ours has the same 41 numbers without torch."""
    torch = pytest.importorskip("torch")
    from dspark_calib.calibration.fitting.reference_fitters import sglang_rule

    theirs = torch.logspace(math.log10(0.1), math.log10(10.0), steps=41).to(torch.float64).numpy()
    np.testing.assert_array_equal(sglang_rule().temperatures, theirs)


@pytest.mark.parametrize(
    ("seed", "view", "select", "target"),
    [
        (0, "cumulative", "paper", 1.0),
        (1, "cumulative", "parsimonious", 1.0),
        (2, "conditional", "paper", 1.0),
        (3, "cumulative", "parsimonious", 1.4),
        (4, "conditional", "parsimonious", 1.6),
    ],
)
def test_pruned_search_equals_exhaustive_search(
    seed: int, view: Any, select: Any, target: float, small_sketch: None
) -> None:
    """The sketch only saves work: the same minimum, the same choice and the same interval at every position."""
    rows = rows_of(synthetic(seed, prompts=300, each=60, temperatures=(1.5, 0.7)), view)
    for _ in range(2):
        pruned = search(rows, "ece", select, 20, target=target, exhaustive=False)
        exhaustive = search(rows, "ece", select, 20, target=target, exhaustive=True)
        assert pruned.best == exhaustive.best
        choices = [choose(found.candidates, rows.hashes, select, 0, target) for found in (pruned, exhaustive)]
        assert choices[0] == choices[1]
        coarse = default_grid()
        best = coarse[np.argmin(evaluate_totals(rows, "ece", coarse, 20))]
        everything = evaluate_by_cluster(rows, "ece", np.union1d(coarse, fine_grid(float(best))), 20)
        assert choices[0].temperature == choose(everything, rows.hashes, select, 0, target).temperature
        rows.fix(pruned.best)


@pytest.mark.parametrize("extreme", [1.0, 30.0, 1e6])
def test_sketch_bounds_hold(extreme: Any, small_sketch: None) -> None:
    """The exact ECE lies within the bound at every temperature, with logits far out too."""
    rounds = synthetic(3, prompts=100, each=60, temperatures=(1.5, 0.7))
    rounds = replace(rounds, confidence_logits=(rounds.confidence_logits * extreme).astype(np.float32))
    rows = rows_of(rounds)
    grid = np.array([0.125, 0.5, 0.9, 1.0, 1.1, 1.7, 3.0, 8.0])
    fixed = []
    for k in range(2):
        sketch = build_sketch(rows)
        z = np.asarray(rounds.confidence_logits[:, : k + 1], dtype=float)
        exact = np.array([compute_ece(prefix_survival(z, [*fixed, t])[:, k], rounds.accepted > k) for t in grid])
        for bounds in (sketch.bounds(grid, 20), sketch.coarser().bounds(grid, 20)):
            assert (bounds.low <= exact).all()
            assert (exact <= bounds.high).all()
        fixed.append(1.3)
        rows.fix(1.3)


def test_threads_do_not_change_a_number() -> None:
    """Blocks are added in row order however many threads there are."""
    trace = trace_of(synthetic(prompts=60, each=600, temperatures=(1.5,)))
    fits = [
        fit_sts(FitRows(JudgedTrace(trace, threads=threads), "cumulative"), select="paper") for threads in (1, 2, 5)
    ]
    assert fits[0] == fits[1] == fits[2]


@pytest.mark.slow
def test_known_temperature_is_recovered_from_400000_rounds() -> None:
    """True T 1.5, six draws of 400,000 rounds: T within .03 at positions 1-3; mean excess population ECE ≤ .001.

    The bare minimum follows the noise of its draw, so the same bound cannot hold in every draw: at positions 4-7 one
    of the 24 may lie more than .12 from the truth, and at position 1 a T that is off by .01 alone costs .001.
    """
    truth = [1.5] * 7
    new = synthetic(99, prompts=1000, each=1000, temperatures=truth, effect=0.0)
    survival = prefix_survival(new.confidence_logits, truth)  # soft labels: no label noise in the population ECE
    draws = [synthetic(seed, prompts=1000, each=400, temperatures=truth, effect=0.0) for seed in range(1, 7)]
    fits = np.array([fit_sts(rows_of(rounds), select="paper").temperatures for rounds in draws])
    assert np.abs(fits[:, :3] - 1.5).max() <= 0.03
    assert (np.abs(fits[:, 3:] - 1.5) > 0.12).sum() <= 1
    found = [prefix_survival(new.confidence_logits, t) for t in fits]
    excess = np.array([[compute_ece(f[:, k], survival[:, k]) for k in range(7)] for f in found])
    assert excess.mean(axis=0).max() <= 0.001


def test_known_temperature_is_recovered_from_40000_rounds() -> None:
    """The same with 40,000 rounds, four positions and √10 times the room."""
    check_recovery(rounds_per_prompt=40, close=0.095, far=0.38, excess=0.0032, fresh=50, gamma=4)


def check_recovery(
    rounds_per_prompt: Any, close: Any, far: Any, excess: Any, fresh: Any = 2000, gamma: int = 7
) -> None:
    """Fit by the bare minimum and judge T, and the population ECE on fresh rounds."""
    truth = [1.5] * gamma
    fitted = synthetic(1, prompts=1000, each=rounds_per_prompt, temperatures=truth, effect=0.0)
    temperatures = np.array(fit_sts(rows_of(fitted), select="paper").temperatures)
    assert np.abs(temperatures[:3] - 1.5).max() <= close
    assert np.abs(temperatures[3:] - 1.5).max() <= far
    new = synthetic(2, prompts=1000, each=fresh, temperatures=truth, effect=0.0)
    # Soft labels (the true survival) take the label noise out of the population ECE.
    survival = prefix_survival(new.confidence_logits, truth)
    found = prefix_survival(new.confidence_logits, temperatures)
    for k in range(gamma):
        assert compute_ece(found[:, k], survival[:, k]) - compute_ece(survival[:, k], survival[:, k]) <= excess


class TestInputsThatBrokeOthers:
    """Degenerate inputs keep T = 1 and say why, or are refused; no silent T = 0.1 or 10."""

    def fit(self, rounds: Any, **options: Any) -> Any:
        """Fit and return the first position."""
        return fit_sts(rows_of(rounds), **options).positions[0]

    @pytest.mark.parametrize("select", ["paper", "parsimonious"])
    @pytest.mark.parametrize(
        ("change", "flag"),
        [
            pytest.param({"accepted": 3}, "single_class", id="all accepted"),
            pytest.param({"accepted": 0}, "single_class", id="none accepted"),
            pytest.param({"logits": 0.0}, "unidentified", id="all-zero logits"),
            pytest.param({"observed": 0, "accepted": 0}, "no_rounds", id="nothing observed"),
        ],
    )
    def test_unidentifiable_positions_keep_identity(self, change: Any, flag: Any, select: Any) -> None:
        """T = 1 with the reason, where others take the first grid point."""
        rounds = synthetic(prompts=40, each=20)
        n = len(rounds)
        if "logits" in change:
            rounds = replace(rounds, confidence_logits=np.zeros_like(rounds.confidence_logits))
        for name in ("accepted", "observed"):
            if name in change:
                rounds = replace(rounds, **{name: np.full(n, change[name], np.int16)})
        position = self.fit(rounds, select=select)
        assert position.temperature == 1.0
        assert {"kept_at_identity", flag} <= set(position.flags)

    @pytest.mark.parametrize("n", [1, 3])
    def test_a_handful_of_rounds_is_refused_a_temperature(self, n: int) -> None:
        """n = 1 and n = 3 keep identity, flagged few_positives or single_class; SGLang's gives 0.1 and 10."""
        rounds = synthetic(prompts=n, each=1, mean=0.3)
        position = self.fit(rounds)
        assert position.temperature == 1.0
        assert {"few_positives", "single_class"} & set(position.flags)

    def test_few_positives_keep_identity(self) -> None:
        """Fewer than 50 of one class."""
        rounds = synthetic(prompts=60, each=20)
        accepted = np.zeros(len(rounds), np.int16)
        accepted[:49] = 1
        position = self.fit(replace(rounds, accepted=accepted))
        assert "few_positives" in position.flags

    def test_anti_correlated_labels_never_give_a_negative_temperature(self) -> None:
        """autogluon found T = -1242; here T stays 1, unidentified, and AUROC below ½ tells."""
        rounds = synthetic(prompts=60, each=50)
        position = self.fit(replace(rounds, confidence_logits=-rounds.confidence_logits), select="paper")
        assert position.temperature == 1.0
        assert "unidentified" in position.flags

    def test_unrelated_labels_are_unidentified(self) -> None:
        """Labels drawn without regard to the logits: identity, not a march to infinity."""
        rounds = synthetic(prompts=60, each=50)
        rng = np.random.default_rng(0)
        accepted = rng.integers(0, 4, len(rounds)).astype(np.int16)
        assert self.fit(replace(rounds, accepted=accepted)).temperature == 1.0

    def test_a_temperature_beyond_the_grid_is_flagged(self) -> None:
        """True T = 20: the best grid point is the edge and says so."""
        rounds = synthetic(prompts=60, each=50, temperatures=(20.0,))
        position = self.fit(rounds, select="paper")
        assert position.temperature == 8.0
        assert "at_grid_edge" in position.flags

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_non_finite_logits_are_refused_with_row_and_field(self, bad: Any) -> None:
        """One NaN sent SGLang's fit to T = 0.1 from position 2 on, silently."""
        rounds = synthetic(prompts=4, each=5)
        logits = rounds.confidence_logits.copy()
        logits[7, 1] = bad
        with pytest.raises(TraceFormatError, match="row 7, confidence_logits"):
            trace_of(replace(rounds, confidence_logits=logits))

    @pytest.mark.parametrize("value", [7.625, 16.640625, 36.74, 3e38])
    def test_saturated_logits_stay_finite(self, value: Any) -> None:
        """Where σ rounds to 1 in float16, float32 or float64 the fit and its numbers stay finite."""
        rounds = synthetic(prompts=40, each=50)
        logits = rounds.confidence_logits.copy()
        logits[:200] = value
        logits[200:300] = -value
        calibration = fit_calibration(trace_of(replace(rounds, confidence_logits=logits)), accept=("all",))
        assert all(math.isfinite(t) and t > 0 for t in calibration.temperatures)
        assert calibration.held_out is not None
        assert all(e.value is not None and math.isfinite(e.value) for e in calibration.held_out.ece_after)

    def test_one_prompt_fits_without_intervals(self) -> None:
        """A single prompt: no interval of T, in-sample numbers labelled so, nothing breaks."""
        calibration = fit_calibration(trace_of(synthetic(prompts=1, each=2000)))
        assert calibration.held_out is not None
        assert calibration.held_out.evaluation == "in_sample"
        assert calibration.fit is not None
        assert all(p.interval is None for p in calibration.fit.positions)

    def test_float32_and_float64_logits_fit_alike(self) -> None:
        """The trace holds float32; arithmetic is float64, so T is found at all (netcal returned 1 for float32)."""
        assert self.fit(synthetic(prompts=100, each=50), select="paper").temperature == pytest.approx(1.5, abs=0.15)


def test_double_calibration_shows_as_temperature_near_one() -> None:
    """Logits that already carry the right temperature fit T ≈ 1."""
    rounds = synthetic(4, prompts=100, each=100, temperatures=(1.5, 1.5), effect=0.0)
    done = replace(rounds, confidence_logits=(rounds.confidence_logits / 1.5).astype(np.float32))
    assert fit_sts(rows_of(done)).temperatures == pytest.approx((1.0, 1.0), abs=0.1)


def test_prompts_without_ids_are_fitted_in_blocks_of_rounds() -> None:
    """No prompt ids: folds and intervals rest on blocks of 100 rounds."""
    rounds = replace(synthetic(prompts=20, each=100), prompt_id=Labels.constant(None, 2000))
    calibration = fit_calibration(trace_of(rounds))
    assert calibration.cross_fit is not None
    assert calibration.prompts == 0


@pytest.mark.parametrize("objective", ["brier", "nll"])
def test_proper_objectives_find_the_true_temperature(objective: Any) -> None:
    """Brier score and likelihood are least at the true T too."""
    rounds = synthetic(5, prompts=200, each=100, temperatures=(1.5, 1.5), effect=0.0)
    view = "conditional" if objective == "nll" else "cumulative"
    fit = fit_sts(rows_of(rounds, view), objective=objective, select="paper")
    assert fit.temperatures == pytest.approx((1.5, 1.5), abs=0.1)


def test_likelihood_objective_equals_logistic_regression_without_intercept() -> None:
    """1/T by likelihood is the slope of scikit-learn's logistic regression, to the step of the grid."""
    from sklearn.linear_model import LogisticRegression

    rounds = synthetic(6, prompts=100, each=50, temperatures=(1.7,))
    model = LogisticRegression(C=1e9, fit_intercept=False, tol=1e-10)
    model.fit(rounds.confidence_logits.astype(float), rounds.accepted > 0)
    fit = fit_sts(rows_of(rounds, "conditional"), objective="nll", select="paper")
    assert fit.temperatures[0] == pytest.approx(1 / model.coef_[0, 0], abs=0.0051)


@pytest.mark.parametrize(("prompts", "each"), [(80, 25), (250, 8)], ids=["every temperature", "33 temperatures"])
def test_interval_of_the_temperature_covers_the_truth(prompts: int, each: int) -> None:
    """Over 40 traces the 95 % interval of T_1 holds the true T in at least 90 %, with few prompts and with many."""
    hits = 0
    for seed in range(40):
        rounds = synthetic(seed, prompts=prompts, each=each, temperatures=(1.5,), effect=0.0)
        low, high = fit_sts(rows_of(rounds), select="paper").positions[0].interval
        hits += low <= 1.5 <= high
    assert hits >= 36
