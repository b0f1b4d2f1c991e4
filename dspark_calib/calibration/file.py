"""The calibration file: one JSON object that inference engines load as it is.

Top level: the struct of SGLang and TensorRT-LLM (`temperatures`, `dataset`, `num_samples`, `ece_before`,
`ece_after`). Everything else lies under `dspark_calib`, which those engines skip.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark_calib.calibration.fitting.fit_record import TemperatureFit
from dspark_calib.calibration.tables import Baseline, CrossFit, HeldOut, Transfer
from dspark_calib.diagnostics.finding import Finding
from dspark_calib.errors import CalibrationFileError, OutputExists, TraceFormatError
from dspark_calib.trace.provenance import Checkpoint
from dspark_calib.trace.store import read_json_object, write_json

SCHEMA = "dspark-calib/calibration/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Temperatures with everything that says where they come from and what they do.

    Attributes:
        temperatures: T_k > 0, length γ.
        dataset: Names of the data sets fitted on, joined by "+".
        num_samples: Rounds fitted on.
        ece_before: Raw ECE per position over the rounds of `ece_after`, or None where a position is undefined.
        ece_after: Held-out ECE per position (in-sample where `held_out` is None), or None.
        target: The verifying model.
        drafter: The proposing model.
        confidence_source: `head`, or the proxy.
        label_law: `sampled` or `greedy`.
        sampling_temperature: Of the responses.
        trace_hash: Content hash of the trace fitted on.
        prompts: Prompts fitted on.
        bins: Of the ECE.
        seed: Of folds and replicates.
        fit: The fit position by position; None for a file of another tool.
        cross_fit: The folds and their temperatures; None with `--holdout 0`.
        held_out: Measures before and after; None for a file of another tool.
        baselines: What other ways of fitting reach, held out.
        transfer: Fitted on one group, judged on another.
        by_group: Temperatures fitted on each group alone, by name.
        findings: What the checks on the trace said.
        accepted: Findings accepted by name.
        decision: What to do with these temperatures: `adopt` or `keep_identity`.
        reason: Why, in a sentence.
    """

    temperatures: tuple[float, ...]
    dataset: str = ""
    num_samples: int = 0
    ece_before: tuple[float, ...] | None = None
    ece_after: tuple[float, ...] | None = None
    target: Checkpoint = field(default_factory=Checkpoint)
    drafter: Checkpoint = field(default_factory=Checkpoint)
    confidence_source: str | None = None
    label_law: str | None = None
    sampling_temperature: float | None = None
    trace_hash: str | None = None
    prompts: int = 0
    bins: int = 20
    seed: int = 0
    fit: TemperatureFit | None = None
    cross_fit: CrossFit | None = None
    held_out: HeldOut | None = None
    baselines: tuple[Baseline, ...] = ()
    transfer: Transfer | None = None
    by_group: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    accepted: tuple[str, ...] = ()
    decision: str | None = None
    reason: str | None = None

    @property
    def gamma(self) -> int:
        """Drafts in a block."""
        return len(self.temperatures)

    @property
    def is_identity(self) -> bool:
        """Whether no confidence changes."""
        return all(t == 1.0 for t in self.temperatures)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the file."""
        body: dict[str, Any] = {
            "temperatures": list(self.temperatures),
            "dataset": self.dataset,
            "num_samples": self.num_samples,
        }
        # SGLang's struct takes neither null nor NaN: both keys stay out unless every position is defined.
        if self.ece_before is not None and self.ece_after is not None:
            body |= {"ece_before": list(self.ece_before), "ece_after": list(self.ece_after)}
        return body | {"dspark_calib": self._own_part()}

    def _own_part(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "trace": {
                "content_hash": self.trace_hash,
                "target": _checkpoint_dict(self.target),
                "drafter": _checkpoint_dict(self.drafter),
                "confidence_source": self.confidence_source,
                "label_law": self.label_law,
                "temperature": self.sampling_temperature,
                "prompts": self.prompts,
            },
            "bins": self.bins,
            "seed": self.seed,
            "fit": None if self.fit is None else self.fit.to_dict(),
            "cross_fit": None if self.cross_fit is None else self.cross_fit.to_dict(),
            "held_out": None if self.held_out is None else self.held_out.to_dict(),
            "baselines": [b.to_dict() for b in self.baselines],
            "transfer": None if self.transfer is None else self.transfer.to_dict(),
            "by_group": {name: list(t) for name, t in self.by_group.items()},
            "findings": [f.to_dict() for f in self.findings],
            "accepted": list(self.accepted),
            "decision": self.decision,
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str) -> "Calibration":
        """Read the JSON object; a file of SGLang, TensorRT-LLM or DeepSpec lacks our own key and is read too.

        Raises:
            CalibrationFileError: Naming the file and the field that is wrong.
        """
        temperatures = _temperatures(data, where)
        gamma = len(temperatures)
        common: dict[str, Any] = {
            "temperatures": temperatures,
            "dataset": _text(data.get("dataset", ""), "dataset", where),
            "num_samples": _count(data.get("num_samples", 0), "num_samples", where),
            "ece_before": _eces(data, "ece_before", gamma, where),
            "ece_after": _eces(data, "ece_after", gamma, where),
        }
        own = data.get("dspark_calib")
        if own is None:
            return cls(**common)
        try:
            return cls(**common, **_own_fields(own))
        except (KeyError, TypeError, ValueError, AttributeError, TraceFormatError) as error:
            raise CalibrationFileError(
                f"{where}, dspark_calib: {type(error).__name__} {error}; fit again with this version"
            ) from error


def read_calibration(path: str | Path) -> Calibration:
    """Read a calibration file of this tool, SGLang, TensorRT-LLM or DeepSpec.

    Raises:
        CalibrationFileError: Naming the file and the field that is wrong.
    """
    file = Path(path)
    if not file.is_file():
        raise CalibrationFileError(f"{file}: there is no such file; make one with `dspark-calib fit-sts`")
    try:
        data = read_json_object(file)
    except TraceFormatError as error:
        raise CalibrationFileError(str(error)) from error
    return Calibration.from_dict(data, str(file))


def write_calibration(path: str | Path, calibration: Calibration, *, overwrite: bool = False) -> Path:
    """Write the file under a temporary name, then rename it.

    Raises:
        OutputExists: If the file stands already and `overwrite` is not set.
    """
    file = Path(path)
    refuse_existing(file, overwrite=overwrite)
    write_json(file, calibration.to_dict())
    return file


def refuse_existing(path: str | Path, *, overwrite: bool) -> None:
    """Refuse an output that stands already, before any work is done for it.

    Raises:
        OutputExists: If the file stands already and `overwrite` is not set.
    """
    if Path(path).exists() and not overwrite:
        raise OutputExists(f"{path} exists already; name another output or pass --overwrite")


def check_fits_trace(calibration: Calibration, gamma: int, name: str) -> None:
    """Refuse a calibration of another block size.

    Raises:
        CalibrationFileError: If the number of temperatures is not γ.
    """
    if calibration.gamma != gamma:
        raise CalibrationFileError(
            f"the calibration has {calibration.gamma} temperatures, {name} has blocks of γ = {gamma}; "
            "fit one on a trace of this drafter"
        )


def _own_fields(own: Mapping[str, Any]) -> dict[str, Any]:
    if own["schema"] != SCHEMA:
        raise ValueError(f"schema {own['schema']!r} is not {SCHEMA!r}")
    trace = own["trace"]
    return {
        "target": Checkpoint(**trace["target"]),
        "drafter": Checkpoint(**trace["drafter"]),
        "confidence_source": trace["confidence_source"],
        "label_law": trace["label_law"],
        "sampling_temperature": trace["temperature"],
        "trace_hash": trace["content_hash"],
        "prompts": trace["prompts"],
        "bins": own["bins"],
        "seed": own["seed"],
        "fit": None if own["fit"] is None else TemperatureFit.from_dict(own["fit"]),
        "cross_fit": None if own["cross_fit"] is None else CrossFit.from_dict(own["cross_fit"]),
        "held_out": None if own["held_out"] is None else HeldOut.from_dict(own["held_out"]),
        "baselines": tuple(Baseline.from_dict(b) for b in own["baselines"]),
        "transfer": None if own["transfer"] is None else Transfer.from_dict(own["transfer"]),
        "by_group": {name: tuple(t) for name, t in own["by_group"].items()},
        "findings": tuple(Finding.from_dict(f) for f in own["findings"]),
        "accepted": tuple(own["accepted"]),
        "decision": own["decision"],
        "reason": own["reason"],
    }


def _temperatures(data: Mapping[str, Any], where: str) -> tuple[float, ...]:
    values = data.get("temperatures")
    if not isinstance(values, list) or not values:
        raise CalibrationFileError(f"{where}, temperatures: expected a list of γ numbers, found {values!r}")
    for k, value in enumerate(values, start=1):
        if not _is_number(value) or not math.isfinite(value) or value <= 0:
            raise CalibrationFileError(f"{where}, temperatures, position {k} = {value!r}: expected a number > 0")
    return tuple(float(v) for v in values)


def _eces(data: Mapping[str, Any], key: str, gamma: int, where: str) -> tuple[float, ...] | None:
    values: Sequence[Any] | None = data.get(key)
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != gamma:
        raise CalibrationFileError(f"{where}, {key}: expected {gamma} numbers like temperatures, found {values!r}")
    if not all(_is_number(v) and math.isfinite(v) for v in values):
        return None  # DeepSpec's fitter writes a bare NaN for a position without data
    return tuple(float(v) for v in values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: object, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise CalibrationFileError(f"{where}, {key} = {value!r}: expected text")
    return value


def _count(value: object, key: str, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CalibrationFileError(f"{where}, {key} = {value!r}: expected a whole number")
    return value


def _checkpoint_dict(checkpoint: Checkpoint) -> dict[str, str | None]:
    return {"name": checkpoint.name, "content_hash": checkpoint.content_hash}
