"""From a temperature table to one engine's setting, checked by that engine's own rule."""

import math
from dataclasses import dataclass

from dspark_calib.engines.environment import DEEPINFER, ENV, KUBERNETES, SHELL
from dspark_calib.engines.json_files import DEEPSPEC, SGLANG, TENSORRT_LLM
from dspark_calib.engines.table import Engine, TemperatureTable
from dspark_calib.errors import CalibrationFileError, ExportError

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (DEEPINFER, SGLANG, TENSORRT_LLM, DEEPSPEC, ENV, KUBERNETES, SHELL)
}
VLLM = "vllm"
_VLLM_READS_NONE = (
    "vLLM reads no temperatures (main uses the checkpoint's confidences as they are, with "
    "enable_adaptive_verification in --speculative-config), so no file was written that nobody loads; "
    "judge the raw confidences with `dspark-calib gate`, or serve with an engine that reads a table: "
    f"{', '.join(ENGINES)}"
)
_PARSE_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One engine's setting.

    Attributes:
        engine: Its name.
        text: The setting, as the engine reads it.
        usage: How the engine is given it; `{file}` stands for the path.
        warnings: What the reader should know before serving with it.
    """

    engine: str
    text: str
    usage: str
    warnings: tuple[str, ...]


def find_engine(name: str) -> Engine:
    """Return the engine of that name.

    Raises:
        ExportError: If it is unknown, or is vLLM, which reads no temperatures.
    """
    if name == VLLM:
        raise ExportError(_VLLM_READS_NONE)
    if name not in ENGINES:
        raise ExportError(f"unknown engine {name!r}; known are {', '.join((*ENGINES, VLLM))}")
    return ENGINES[name]


def render_export(table: TemperatureTable, engine_name: str) -> Export:
    """Return the setting, after reading it back by the engine's rule.

    Raises:
        ExportError: If the engine is unknown, reads no temperatures, or would not load this table.
    """
    engine = find_engine(engine_name)
    text = engine.render(table)
    check_setting(text, table, engine_name)
    warnings = ("every temperature is 1: the engine will schedule by raw confidences",) if table.is_identity else ()
    return Export(engine=engine.name, text=text, usage=engine.usage, warnings=warnings)


def check_setting(text: str, table: TemperatureTable, engine_name: str) -> None:
    """Read a setting by the engine's own rule and compare it with the table.

    Raises:
        ExportError: If the engine would refuse it, or would use temperatures off by more than 1e-9.
    """
    read = find_engine(engine_name).parse(text, table.gamma)
    for position, (got, want) in enumerate(zip(read, table.temperatures, strict=True), start=1):
        if not math.isclose(got, want, rel_tol=_PARSE_TOLERANCE, abs_tol=0.0):
            raise ExportError(
                f"{engine_name} would use {got} at position {position}, the calibration says {want}; export again"
            )


def check_checkpoint(fitted_on: str | None, offered: str | None, *, allow_other: bool) -> str | None:
    """Compare the drafter a calibration was fitted on with the one it is to serve, by content hash.

    Returns:
        A warning where they differ or cannot be compared, None where they are the same.

    Raises:
        CalibrationFileError: If they are known to differ and `allow_other` is not set.
    """
    if offered is None:
        return None
    if fitted_on is None:
        return "the calibration does not say which checkpoint it was fitted on, so --drafter could not be compared"
    if fitted_on == offered:
        return None
    difference = f"the calibration was fitted on a drafter with hash {fitted_on[:12]}…, this one has {offered[:12]}…"
    if not allow_other:
        raise CalibrationFileError(f"{difference}; fit again for this checkpoint, or pass --allow-other-checkpoint")
    return f"{difference}; exported all the same, as asked"
