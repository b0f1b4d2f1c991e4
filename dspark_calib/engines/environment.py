"""DeepInfer's variables in the forms in which an environment is handed to a process.

`deepinfer` bare assignments, `env` the same with comments (docker `--env-file`, systemd
`EnvironmentFile=`), `shell` export lines to source, `kubernetes` a ConfigMap that also carries the
JSON file of the other engines.
"""

import json
import re
import shlex
from collections.abc import Iterable

from dspark_calib.engines.deepinfer import deepinfer_variables, read_deepinfer_variables
from dspark_calib.engines.json_files import render_sglang
from dspark_calib.engines.table import Engine, TemperatureTable
from dspark_calib.errors import ExportError

CONFIG_MAP_FILE = "dspark-temperatures.json"
_YAML_ENTRY = re.compile(r'  (?P<key>[-._A-Za-z0-9]+): (?P<value>".*")')


def render_assignments(table: TemperatureTable) -> str:
    """Return NAME=value lines without quotes or comments."""
    return "".join(f"{name}={value}\n" for name, value in deepinfer_variables(table).items())


def render_env_file(table: TemperatureTable) -> str:
    """Return the assignments under a comment that says where they come from."""
    return f"# {_origin(table)}\n{render_assignments(table)}"


def parse_env_file(text: str, gamma: int) -> tuple[float, ...]:
    """Read NAME=value lines; a line that starts with # is a comment, quotes belong to the value (docker's rule)."""
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return read_deepinfer_variables(_assignments(lines), gamma)


def render_shell(table: TemperatureTable) -> str:
    """Return lines to source in a POSIX shell."""
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in deepinfer_variables(table).items())
    return f"# {_origin(table)}\n{''.join(lines)}"


def parse_shell(text: str, gamma: int) -> tuple[float, ...]:
    """Read export lines as a POSIX shell splits them."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise ExportError(f"a shell would not read this ({error})") from error
    return read_deepinfer_variables(_assignments(word for word in words if word != "export"), gamma)


def render_config_map(table: TemperatureTable) -> str:
    """Return a ConfigMap: the variables, and the JSON file for engines that mount one.

    Values are double-quoted scalars, which YAML reads exactly as JSON strings.
    """
    data = {**deepinfer_variables(table), CONFIG_MAP_FILE: render_sglang(table)}
    head = f"# {_origin(table)}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: dspark-temperatures\ndata:\n"
    return head + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in data.items())


def parse_config_map(text: str, gamma: int) -> tuple[float, ...]:
    """Read the `data` of a ConfigMap whose values are double-quoted scalars.

    This is the YAML that `render_config_map` writes, not YAML at large: one edited into another style
    is refused rather than misread.
    """
    _, found, body = text.partition("\ndata:\n")
    if not found or "kind: ConfigMap" not in text:
        raise ExportError("Kubernetes: this is no ConfigMap with data as dspark-calib writes it")
    entries = [_YAML_ENTRY.fullmatch(line) for line in body.splitlines() if line.strip()]
    try:
        data = {m["key"]: json.loads(m["value"]) for m in entries if m is not None}
    except ValueError as error:
        raise ExportError(f"Kubernetes: a value in data is not a double-quoted string ({error})") from error
    if None in entries:
        raise ExportError("Kubernetes: every entry of data must be a key and a double-quoted string")
    return read_deepinfer_variables(data, gamma)


def _assignments(lines: Iterable[str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals:
            raise ExportError(f"{line.strip()!r} is no NAME=value")
        variables[name.strip()] = value
    return variables


def _origin(table: TemperatureTable) -> str:
    source = " ".join(table.dataset.split()) or "an unnamed set"
    return f"confidence temperatures fitted by dspark-calib on {table.num_samples} rounds of {source}"


_VARLEN = "DEEPINFER_ENABLE_MTP_VARLEN must be on for the confidences to be used"
DEEPINFER = Engine(
    name="deepinfer",
    file_name="deepinfer.env",
    render=render_assignments,
    parse=parse_env_file,
    usage=f"DeepInfer: put these variables into the server's environment; {_VARLEN}",
)
ENV = Engine(
    name="env",
    file_name="dspark.env",
    render=render_env_file,
    parse=parse_env_file,
    usage=f"docker run --env-file {{file}} …, or EnvironmentFile={{file}} in a systemd unit; {_VARLEN}",
)
SHELL = Engine(
    name="shell",
    file_name="dspark-env.sh",
    render=render_shell,
    parse=parse_shell,
    usage=f". {{file}} before the server starts; {_VARLEN}",
)
KUBERNETES = Engine(
    name="kubernetes",
    file_name="dspark-temperatures.yaml",
    render=render_config_map,
    parse=parse_config_map,
    usage=f"kubectl apply -f {{file}}; envFrom for DeepInfer, mount {CONFIG_MAP_FILE} for the others",
)
