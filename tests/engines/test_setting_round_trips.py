"""Every engine reads back what was written for it, by rules restated here from the engines' own sources."""

import json
import subprocess
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dspark_calib.engines import ENGINES, TemperatureTable, check_setting, render_export

TEMPERATURES = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=32).map(tuple)


def deepinfer_rule(environment: dict[str, str]) -> list[float]:
    """DeepInfer 0.1.0 as its facts sheet states it: split at commas or one float for all, count = γ."""
    gamma = int(environment["DEEPINFER_USE_NEXTN_DECODE"])
    value = environment["DEEPINFER_DFLASH_CONFIDENCE_HEAD_TEMPERATURE"]
    if "," not in value:
        return [max(float(value), 1e-5)] * gamma
    values = [max(float(part.strip()), 1e-5) for part in value.split(",")]
    if len(values) != gamma:
        raise ValueError(value)
    return values


def docker_env_file(text: str) -> dict[str, str]:
    """`docker run --env-file`: comments start with #, the rest is NAME=value verbatim."""
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def posix_shell(text: str) -> dict[str, str]:
    """Let a real shell source the file and print its environment."""
    run = subprocess.run(["env", "-i", "sh", "-c", f"{text}\nenv"], capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in run.stdout.splitlines())


FOREIGN_READERS: dict[str, Callable[[str], list[float]]] = {
    "deepinfer": lambda text: deepinfer_rule(docker_env_file(text)),
    "env": lambda text: deepinfer_rule(docker_env_file(text)),
    "kubernetes": lambda text: deepinfer_rule(yaml.safe_load(text)["data"]),
    "sglang": lambda text: json.loads(text)["temperatures"],
    "tensorrt-llm": lambda text: json.loads(text)["sts_temperatures"],
    "deepspec": lambda text: json.loads(text)["temperatures"],
}


@pytest.mark.parametrize("engine", ENGINES)
@given(temperatures=TEMPERATURES)
def test_own_rule_reads_back_what_was_written(engine: str, temperatures: tuple[float, ...]) -> None:
    """Export, parsed by the engine's rule, equals the table to 1e-9 for every γ from 1 to 32."""
    table = TemperatureTable(temperatures=temperatures, dataset="chat + 'code'\n#x", num_samples=7)
    export = render_export(table, engine)
    assert ENGINES[engine].parse(export.text, table.gamma) == pytest.approx(temperatures, rel=1e-9)


@pytest.mark.parametrize("engine", FOREIGN_READERS)
@given(temperatures=TEMPERATURES)
def test_foreign_reader_agrees(engine: str, temperatures: tuple[float, ...]) -> None:
    """A reader written from the engine's documents, or another library, finds the same temperatures."""
    table = TemperatureTable(temperatures=temperatures, dataset="math+code", num_samples=7)
    read = FOREIGN_READERS[engine](render_export(table, engine).text)
    assert read == pytest.approx(temperatures, rel=1e-9)


def test_shell_form_survives_a_real_shell() -> None:
    """`sh` that sources the file has the variables, whatever the data set is called."""
    table = TemperatureTable(temperatures=(1.5, 0.75), dataset="a'b\"c $(false)\nline", num_samples=3)
    assert deepinfer_rule(posix_shell(render_export(table, "shell").text)) == [1.5, 0.75]


def test_one_draft_is_a_scalar_for_deepinfer() -> None:
    """γ = 1 is written without a comma, as DeepInfer's rule needs."""
    text = render_export(TemperatureTable(temperatures=(1.25,)), "deepinfer").text
    assert text == "DEEPINFER_USE_NEXTN_DECODE=1\nDEEPINFER_DFLASH_CONFIDENCE_HEAD_TEMPERATURE=1.25\n"


def test_tensorrt_llm_file_loads_in_sglang() -> None:
    """The TensorRT-LLM file carries both keys."""
    table = TemperatureTable(temperatures=(1.25, 2.0), ece_before=(0.1, 0.2), ece_after=(0.01, 0.02))
    text = render_export(table, "tensorrt-llm").text
    check_setting(text, table, "sglang")


def test_config_map_carries_the_json_file_too() -> None:
    """The ConfigMap's file is what SGLang's rule reads."""
    table = TemperatureTable(temperatures=(1.25, 2.0), num_samples=10, dataset="naïve")
    data = yaml.safe_load(render_export(table, "kubernetes").text)["data"]
    check_setting(data["dspark-temperatures.json"], table, "sglang")
