"""Settings that an engine would refuse or misread are refused before it sees them."""

import pytest

from dspark_calib.engines import ENGINES, TemperatureTable, check_checkpoint, check_setting, find_engine, render_export
from dspark_calib.errors import CalibrationFileError, ExportError

DEEPINFER = "DEEPINFER_USE_NEXTN_DECODE={gamma}\nDEEPINFER_DFLASH_CONFIDENCE_HEAD_TEMPERATURE={value}\n"


@pytest.mark.parametrize(
    "value", ["(1.1,1.2)", "[1.1,1.2]", "1.1,1.2,", ",1.1", "1.1,,1.2", "1.1", "nan,1.0", "a,b", ""]
)
def test_deepinfer_values_that_fail_or_mislead(value: str) -> None:
    """Brackets, empty items, NaN and a wrong number are errors; a scalar for γ = 2 is not the table."""
    table = TemperatureTable(temperatures=(1.1, 1.2))
    with pytest.raises(ExportError):
        check_setting(DEEPINFER.format(gamma=2, value=value), table, "deepinfer")


def test_deepinfer_with_another_gamma() -> None:
    """A setting for another block size names the variable."""
    with pytest.raises(ExportError, match="DEEPINFER_USE_NEXTN_DECODE = 3"):
        check_setting(
            DEEPINFER.format(gamma=3, value="1.1,1.2"), TemperatureTable(temperatures=(1.1, 1.2)), "deepinfer"
        )


def test_deepinfer_block_slots_are_32() -> None:
    """γ = 33 is refused by name."""
    with pytest.raises(ExportError, match="at most 32"):
        render_export(TemperatureTable(temperatures=(1.5,) * 33), "deepinfer")


def test_deepinfer_clamp_is_not_silent() -> None:
    """A temperature under DeepInfer's clamp of 1e-5 is refused."""
    with pytest.raises(ExportError, match="clamp"):
        render_export(TemperatureTable(temperatures=(1e-6,)), "env")


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("[1]", "JSON object"),
        ("{", "not JSON"),
        ('{"temperatures": [1.0, NaN]}', "not JSON"),
        ('{"temperatures": [1.0]}', "γ = 2"),
        ('{"temperatures": [1.0, 0]}', "position 2"),
        ('{"temperatures": [1.0, null]}', "None is not a number"),
        ('{"temperatures": [1.0, true]}', "True is not a number"),
        ('{"temperatures": [1.0, 2.0], "ece_before": [0.1, null]}', "ece_before"),
        ('{"temperatures": [1.0, 2.0], "dataset": null}', "dataset"),
        ('{"temperatures": [1.0, 2.0], "num_samples": 1.5}', "num_samples"),
        ("{}", "temperatures"),
    ],
)
def test_sglang_struct_is_strict(text: str, culprit: str) -> None:
    """Null, NaN, a wrong type or length is refused as SGLang's struct would."""
    with pytest.raises(ExportError, match=culprit):
        ENGINES["sglang"].parse(text, 2)


@pytest.mark.parametrize("engine", ["tensorrt-llm", "deepspec"])
@pytest.mark.parametrize("text", ["{}", '{"temperatures": []}', '{"temperatures": [1, -1]}', '{"temperatures": "1,2"}'])
def test_other_json_readers_refuse(engine: str, text: str) -> None:
    """A missing, empty or negative table is an error for every JSON engine."""
    with pytest.raises(ExportError):
        ENGINES[engine].parse(text, 2)


def test_deepspec_block_size_is_checked() -> None:
    """A file fitted for another block size is refused."""
    with pytest.raises(ExportError, match="block_size = 5"):
        ENGINES["deepspec"].parse('{"temperatures": [1, 2], "block_size": 5}', 2)


@pytest.mark.parametrize(
    "text",
    [
        "kind: Secret\ndata:\n",
        "kind: ConfigMap\n",
        "kind: ConfigMap\ndata:\n  A: plain\n",
        'kind: ConfigMap\ndata:\n  A: "bad \\q"\n',
    ],
)
def test_config_map_in_another_style(text: str) -> None:
    """An edited ConfigMap is refused rather than misread."""
    with pytest.raises(ExportError):
        ENGINES["kubernetes"].parse(text, 2)


@pytest.mark.parametrize(("engine", "text"), [("env", "nonsense"), ("shell", "export A='open"), ("shell", "word")])
def test_environment_that_is_none(engine: str, text: str) -> None:
    """Text without assignments is one clear error."""
    with pytest.raises(ExportError):
        ENGINES[engine].parse(text, 2)


def test_vllm_writes_nothing() -> None:
    """For vLLM, which reads no temperatures, the message says so."""
    with pytest.raises(ExportError, match="vLLM reads no temperatures"):
        find_engine("vllm")


def test_unknown_engine_lists_the_known() -> None:
    """A typo is answered with the list."""
    with pytest.raises(ExportError, match="known are deepinfer, sglang"):
        find_engine("sglnag")


@pytest.mark.parametrize("temperatures", [(), (0.0,), (float("nan"),), (1.0, float("inf")), (-1.0,)])
def test_no_table_without_positive_temperatures(temperatures: tuple[float, ...]) -> None:
    """Empty, zero, negative and non-finite tables do not come to be."""
    with pytest.raises(ExportError):
        TemperatureTable(temperatures=temperatures)


def test_identity_is_written_with_a_warning() -> None:
    """A table of ones is exported as 1.0s and the warning says what that means."""
    export = render_export(TemperatureTable(temperatures=(1.0, 1.0)), "deepinfer")
    assert "=1.0,1.0" in export.text
    assert "raw confidences" in export.warnings[0]


def test_other_checkpoint_is_refused_unless_allowed() -> None:
    """Hashes that differ stop the export; --allow-other-checkpoint turns that into a warning."""
    with pytest.raises(CalibrationFileError, match="--allow-other-checkpoint"):
        check_checkpoint("a" * 64, "b" * 64, allow_other=False)
    assert "bbbbbbbbbbbb" in str(check_checkpoint("a" * 64, "b" * 64, allow_other=True))


def test_checkpoints_that_agree_or_are_unknown() -> None:
    """The same hash says nothing; an unknown one says that it could not be compared."""
    assert check_checkpoint("a", "a", allow_other=False) is None
    assert check_checkpoint("a", None, allow_other=False) is None
    assert "could not be compared" in str(check_checkpoint(None, "a", allow_other=False))
