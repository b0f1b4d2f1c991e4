"""Measures against other libraries (minding their listed faults) and closed forms."""

from typing import Any

import numpy as np
import pytest
import relplot
from calibration import get_calibration_error
from model_diagnostics.scoring import SquaredError, decompose

from dspark_calib.metrics import compute_corp, compute_log_loss, compute_reliability, compute_smooth_ece
from dspark_calib.metrics.corp import isotonic_sums
from dspark_calib.metrics.ece import compute_squared_error_debiased
from dspark_calib.metrics.proper import log_losses
from dspark_calib.survival import log_sigmoid, log_survival


def sample(n: int, power: Any = 1.3, seed: int = 0) -> Any:
    """Predictions that overstate a little, and labels."""
    rng = np.random.default_rng(seed)
    p = rng.random(n) ** 0.5
    return p, (rng.random(n) < p**power).astype(float)


@pytest.mark.parametrize("n", [300, 3000])
def test_corp_equals_model_diagnostics(n: int) -> None:
    """Miscalibration, discrimination and uncertainty of the Brier score agree to 1e-9."""
    p, y = sample(n)
    oracle = decompose(y, p, scoring_function=SquaredError())
    mine = compute_corp(p, y)
    assert mine.miscalibration == pytest.approx(oracle["miscalibration"][0], abs=1e-9)
    assert mine.discrimination == pytest.approx(oracle["discrimination"][0], abs=1e-9)
    assert mine.uncertainty == pytest.approx(oracle["uncertainty"][0], abs=1e-9)


def test_corp_terms_add_up_to_the_brier_score() -> None:
    """Brier = miscalibration - discrimination + uncertainty, on continuous predictions too."""
    p, y = sample(500)
    d = compute_corp(p, y)
    assert d.miscalibration - d.discrimination + d.uncertainty == pytest.approx(np.mean((p - y) ** 2), abs=1e-12)


def test_corp_pools_ties_before_it_fits() -> None:
    """All predictions .5, half the labels 1: nothing to recalibrate, nothing discriminated."""
    d = compute_corp([0.5] * 4, [0, 0, 1, 1])
    assert d.miscalibration == pytest.approx(0, abs=1e-12)
    assert d.discrimination == pytest.approx(0, abs=1e-12)


def test_isotonic_rates_stay_finite_and_monotone() -> None:
    """Cells with subnormal distances between predictions cannot break a fit that only knows their order."""
    rates = isotonic_sums(np.array([50.0, 50.0, 0.0, 50.0]), np.array([21.0, 21.0, 0.0, 22.0]))
    filled = rates[[0, 1, 3]]
    assert (np.diff(filled) >= 0).all()
    assert filled.min() >= 0.42 - 1e-12
    assert filled.max() <= 0.44 + 1e-12
    assert np.isnan(rates[2])


@pytest.mark.parametrize("n", [400, 4000])
def test_smooth_ece_equals_relplot(n: int) -> None:
    """Both find the same fixed point; grids and tolerances differ by less than 5e-4."""
    p, y = sample(n)
    assert compute_smooth_ece(p, y) == pytest.approx(relplot.smECE(p, y), abs=5e-4)


def test_smooth_ece_is_continuous_where_ece_jumps() -> None:
    """p = ½ ± 1e-9 with labels 0, 1: ECE says .5, the smooth one nearly 0."""
    assert compute_smooth_ece([0.5 - 1e-9, 0.5 + 1e-9], [0, 1]) < 1e-4
    assert compute_smooth_ece([0.5, 0.5], [0, 1]) < 1e-4


@pytest.mark.parametrize("values", [([], []), ([0.5, np.nan], [0, 1])])
def test_smooth_ece_of_nothing_or_nan_is_an_error(values: Any) -> None:
    """relplot returns 0 and NaN here."""
    with pytest.raises(ValueError, match=r"no rows|predicted\[1\] = nan"):
        compute_smooth_ece(*values)


def test_debiased_squared_error_equals_kumars_library() -> None:
    """uncertainty-calibration's debiased l2 error, squared, on predictions at the middles of ten bins."""
    rng = np.random.default_rng(3)
    p = (rng.integers(0, 10, 5000) + 0.5) / 10
    y = (rng.random(5000) < p * 0.8).astype(int)
    oracle = get_calibration_error(p, y, p=2, debias=True, mode="marginal")
    mine = compute_squared_error_debiased(compute_reliability(p, y, bins=10))
    assert mine == pytest.approx(oracle**2, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_log_loss_of_saturated_logits_is_finite(dtype: type) -> None:
    """From logits: a certain and right round costs 0, a certain and wrong one its logit; float32 p = 1 gave NaN."""
    z = np.array([60.0, 60.0], dtype=dtype)
    right, wrong = log_losses(log_sigmoid(z), [1, 0])
    assert right == pytest.approx(0.0, abs=1e-20)
    assert wrong == pytest.approx(60.0, rel=1e-9)


def test_log_loss_equals_its_closed_form_on_a_product() -> None:
    """-log(1 - a) with a = σ(2)σ(1), by hand."""
    s = log_survival([[2.0, 1.0]])[:, 1]
    assert compute_log_loss(s, [0]) == pytest.approx(-np.log(1 - 0.643914), rel=1e-5)
