"""Engines that read a JSON file: SGLang, TensorRT-LLM and DeepSpec's evaluator.

All three take one object with `temperatures`; they differ in the other keys and in how strict they are.
Rules as read in SGLang `dspark_sts.py` (msgspec struct, 9e16e2d0), TensorRT-LLM `dspark_sts.py`
(0ee1e73f) and DeepSpec pull request 63 (29e4a0e3).
"""

import json
from collections.abc import Mapping
from typing import Any

from dspark_calib.engines.table import Engine, TemperatureTable, check_temperatures
from dspark_calib.errors import ExportError

_SGLANG_LISTS = ("temperatures", "ece_before", "ece_after")


def render_sglang(table: TemperatureTable) -> str:
    """Return the struct `DsparkStsCalibration`; fields at their default are left out, as the struct does."""
    body: dict[str, Any] = {"temperatures": list(table.temperatures)}
    if table.dataset:
        body["dataset"] = table.dataset
    if table.num_samples:
        body["num_samples"] = table.num_samples
    if table.ece_before is not None and table.ece_after is not None:
        body |= {"ece_before": list(table.ece_before), "ece_after": list(table.ece_after)}
    return _dump(body)


def parse_sglang(text: str, gamma: int) -> tuple[float, ...]:
    """Read as msgspec would: typed fields, neither null nor NaN, unknown keys ignored; γ temperatures > 0."""
    body = _load(text, "SGLang")
    for name in _SGLANG_LISTS:
        if name in body:
            _numbers(body[name], f"SGLang, {name}")
    if not isinstance(body.get("dataset", ""), str):
        raise ExportError("SGLang, dataset: its struct takes a string")
    samples = body.get("num_samples", 0)
    if not isinstance(samples, int) or isinstance(samples, bool):
        raise ExportError("SGLang, num_samples: its struct takes a whole number")
    if "temperatures" not in body:
        raise ExportError("SGLang, temperatures: the field is missing")
    return check_temperatures(_numbers(body["temperatures"], "SGLang, temperatures"), gamma, "SGLang's file")


def render_tensorrt_llm(table: TemperatureTable) -> str:
    """Return the table under both keys, so that SGLang loads the file too."""
    return _dump({"sts_temperatures": list(table.temperatures)} | json.loads(render_sglang(table)))


def parse_tensorrt_llm(text: str, gamma: int) -> tuple[float, ...]:
    """Read `sts_temperatures`, else `temperatures`: a non-empty list of numbers."""
    body = _load(text, "TensorRT-LLM")
    values = body.get("sts_temperatures", body.get("temperatures"))
    if values is None:
        raise ExportError("TensorRT-LLM: neither sts_temperatures nor temperatures is there")
    return check_temperatures(_numbers(values, "TensorRT-LLM, temperatures"), gamma, "TensorRT-LLM's file")


def render_deepspec(table: TemperatureTable) -> str:
    """Return what `eval.py --confidence-calibration-path` loads: `temperatures`, and the block size to check by."""
    return _dump({"temperatures": list(table.temperatures), "block_size": table.gamma, "sources": [table.dataset]})


def parse_deepspec(text: str, gamma: int) -> tuple[float, ...]:
    """Read `temperatures`: as many as the block size, all positive."""
    body = _load(text, "DeepSpec")
    if body.get("block_size", gamma) != gamma:
        raise ExportError(f"DeepSpec, block_size = {body['block_size']}: the drafter drafts γ = {gamma}")
    return check_temperatures(_numbers(body.get("temperatures"), "DeepSpec, temperatures"), gamma, "DeepSpec's file")


def _dump(body: Mapping[str, Any]) -> str:
    return json.dumps(body, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _load(text: str, engine: str) -> dict[str, Any]:
    try:
        body = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{engine} would not load this: not JSON ({error})") from error
    if not isinstance(body, dict):
        raise ExportError(f"{engine} would not load this: expected a JSON object, found {type(body).__name__}")
    return body


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _numbers(values: object, where: str) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise ExportError(f"{where}: expected a list of numbers, found {values!r}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ExportError(f"{where}: {value!r} is not a number")
    return tuple(float(v) for v in values)


SGLANG = Engine(
    name="sglang",
    file_name="dspark-sts.json",
    render=render_sglang,
    parse=parse_sglang,
    usage="SGLang: start the server with --speculative-dspark-confidence-sts-path {file}",
)
TENSORRT_LLM = Engine(
    name="tensorrt-llm",
    file_name="dspark-sts.json",
    render=render_tensorrt_llm,
    parse=parse_tensorrt_llm,
    usage="TensorRT-LLM: DSparkDecodingConfig(enable_confidence_scheduling=True, confidence_calibration_path='{file}')",
)
DEEPSPEC = Engine(
    name="deepspec",
    file_name="dspark-sts.json",
    render=render_deepspec,
    parse=parse_deepspec,
    usage="DeepSpec (pull request 63): eval.py --confidence-calibration-path {file}",
)
