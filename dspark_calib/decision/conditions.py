"""What a gate may ask of a trace."""

import math
from dataclasses import dataclass, fields

from dspark_calib.errors import ConfigError

_RANGES = {
    "max_ece": (0.0, 1.0),
    "min_auroc": (0.0, 1.0),
    "max_bias": (0.0, 1.0),
    "max_brier_increase": (-1.0, 1.0),
    "min_accepted_length": (0.0, math.inf),
    "max_regression": (0.0, 1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Limits, each None where nothing is asked.

    Attributes:
        max_ece: Highest ECE of prefix survival, at every position.
        min_auroc: Lowest AUROC of prefix survival, at every position.
        max_bias: Highest |mean predicted - observed prefix acceptance|, at every position.
        max_brier_increase: Highest Brier score, calibrated minus raw over the same rounds, at every position.
        min_accepted_length: Lowest accepted length τ.
        max_regression: Highest increase of the ECE over the baseline, at every position.
    """

    max_ece: float | None = None
    min_auroc: float | None = None
    max_bias: float | None = None
    max_brier_increase: float | None = None
    min_accepted_length: float | None = None
    max_regression: float | None = None

    def __post_init__(self) -> None:
        for name, (lowest, highest) in _RANGES.items():
            limit = getattr(self, name)
            if limit is not None and not (math.isfinite(limit) and lowest <= limit <= highest):
                raise ConfigError(f"--{_option(name)} {limit}: expected a number from {lowest} to {highest}")

    @property
    def asked(self) -> dict[str, float]:
        """The limits that were given, by option name."""
        limits = {_option(field.name): getattr(self, field.name) for field in fields(self)}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def check_answerable(self, *, has_baseline: bool, has_calibration: bool) -> None:
        """Refuse a question that cannot be answered, before any work is done.

        Raises:
            ConfigError: If nothing is asked, or what is asked needs a baseline or calibration that is not there.
        """
        if not self.asked:
            raise ConfigError("nothing to judge: give a condition such as --max-ece 0.05, or a [gate] table")
        if self.max_regression is not None and not has_baseline:
            raise ConfigError("--max-regression needs --baseline: an earlier trace, or its report.json")
        if has_baseline and self.max_regression is None:
            raise ConfigError("--baseline is only used by --max-regression; give both")
        if self.max_brier_increase is not None and not has_calibration:
            raise ConfigError("--max-brier-increase compares calibrated with raw confidences; give --calibration")


def _option(name: str) -> str:
    return name.replace("_", "-")
