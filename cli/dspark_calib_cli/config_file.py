"""Defaults from `dspark-calib.toml`: one table a command, keys = option names without dashes in front.

Every table and key is checked here, because the command line parser would ignore an unknown one silently.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dspark_calib.errors import ConfigError

FILE_NAME = "dspark-calib.toml"
NOT_READ = frozenset({"trust-remote-code", "config", "help"})  # a folder must not switch foreign code on
_HUB_METAVAR = "NAME|FOLDER"
_PATH_METAVARS = ("FILE", "FOLDER", "[NAME=]FILE", _HUB_METAVAR, "[TRACE]", "[TRACE]...", "[CALIBRATION]")


class OptionTable:
    """What a command accepts, by the key of the file.

    Attributes:
        names: Parameter name of each key.
        paths: Keys whose values are files or folders.
        models: Keys among them that may also name a model on a hub.
        repeatable: Keys that take a list.
    """

    def __init__(self, parameters: Sequence[Any]) -> None:
        self.names: dict[str, str] = {}
        self.paths: set[str] = set()
        self.models: set[str] = set()
        self.repeatable: set[str] = set()
        for parameter in parameters:
            key = _file_key(parameter)
            if key in NOT_READ:
                continue
            self.names[key] = parameter.name
            if parameter.multiple or parameter.nargs == -1:
                self.repeatable.add(key)
            if (parameter.metavar or "") in _PATH_METAVARS:
                self.paths.add(key)
            if parameter.metavar == _HUB_METAVAR:
                self.models.add(key)


def _file_key(parameter: Any) -> str:
    long_options = [option for option in parameter.opts if option.startswith("--")]
    return (
        long_options[0].removeprefix("--") if long_options else "trace" if "trace" in parameter.name else parameter.name
    )


def load_defaults(path: Path, commands: Mapping[str, OptionTable]) -> dict[str, dict[str, object]]:
    """Read the file as defaults for each command's parameters.

    Args:
        path: The TOML file.
        commands: The options of each command.

    Returns:
        Parameter values by command, by parameter name; relative paths resolved against the file's folder.

    Raises:
        ConfigError: If the file is no TOML, or a table, key or value is not known.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not readable as TOML ({error})") from error
    return {name: _table(path, name, values, commands) for name, values in tables.items()}


def _table(path: Path, name: str, values: object, commands: Mapping[str, OptionTable]) -> dict[str, object]:
    if name not in commands:
        raise ConfigError(f"{path}, [{name}]: no such command{_nearest(name, commands)}")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}, {name}: expected a table [{name}], found {values!r}")
    options = commands[name]
    defaults: dict[str, object] = {}
    for key, value in values.items():
        where = f"{path}, [{name}] {key}"
        if key in NOT_READ:
            raise ConfigError(f"{where}: not read from a file; pass --{key} on the command line")
        if key not in options.names:
            hint = _nearest(key.replace("_", "-"), options.names)
            raise ConfigError(f"{where}: `{name}` has no such option{hint}")
        defaults[options.names[key]] = _value(where, key, value, options, path.parent)
    return defaults


def _value(where: str, key: str, value: object, options: OptionTable, folder: Path) -> object:
    several = key in options.repeatable
    if isinstance(value, list) != several:
        raise ConfigError(f"{where} = {value!r}: expected {'a list' if several else 'one value'}")
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, dict | list) for item in items):
        raise ConfigError(f"{where} = {value!r}: expected text, a number, true or false")
    if key in options.paths:
        items = [_resolve(str(item), folder, may_be_hub_name=key in options.models) for item in items]
    return items if several else items[0]


def _resolve(text: str, folder: Path, *, may_be_hub_name: bool) -> str:
    """Return `FILE` or `NAME=FILE` with the file relative to the folder."""
    name, equals, file = text.rpartition("=")
    if may_be_hub_name and not (folder / text).exists():
        return text
    return f"{name}{equals}{folder / file}"


def _nearest(name: str, known: Mapping[str, object]) -> str:
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean `{match[0]}`?" if match else f"; known are {', '.join(sorted(known))}"
