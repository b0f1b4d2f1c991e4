"""Reading models through transformers: its failures as one line, and nothing drawn into the terminal."""

import importlib
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dspark_calib.errors import CheckpointError, UnsupportedModel


@contextmanager
def readable_failures(name: str) -> Iterator[None]:
    """Turn what transformers, safetensors and pickle raise over a model's files into one line that names the model.

    Args:
        name: The model as the user gave it.

    Raises:
        CheckpointError: If a file is missing or damaged.
        UnsupportedModel: If transformers cannot read it, or only with code that lies with the model.
    """
    from safetensors import SafetensorError

    damaged = (OSError, SafetensorError, RuntimeError, pickle.UnpicklingError, EOFError)
    try:
        yield
    except (*damaged, ValueError, KeyError, ImportError) as error:
        line = first_line(error)
        if "trust_remote_code" in str(error):
            raise UnsupportedModel(
                f"{name}: only code that lies with the model can read it; if you trust its authors, "
                "pass --trust-remote-code"
            ) from error
        if isinstance(error, damaged):
            raise CheckpointError(f"{name}: missing, truncated or damaged ({line}); download it again") from error
        raise UnsupportedModel(f"{name}: transformers cannot load it ({line})") from error


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing its own bars: the library never prints."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def refuse_missing_weights(name: str, loading: dict[str, Any]) -> None:
    """Refuse a model whose checkpoint lacks weights: transformers fills them with random numbers and only logs it.

    Raises:
        CheckpointError: Naming the first that is missing.
    """
    if missing := sorted(loading["missing_keys"]):
        raise CheckpointError(f"{name}: {len(missing)} weights are missing, such as {missing[0]}; download it again")


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its kind where there is none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
