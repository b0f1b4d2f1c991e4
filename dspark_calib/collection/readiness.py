"""Is everything there for a collection, and do target and drafter fit? Asked before any long run.

Nothing heavy is imported before it is known to be installed, so this answers on a base install too.
"""

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from dspark_calib.errors import DsparkCalibError

if TYPE_CHECKING:
    from dspark_calib.collection.target import TargetDescription, TargetFiles

_BASE = ("numpy", "scipy", "pyarrow", "scikit-learn", "typer", "rich", "plotly")
_COLLECT = ("torch", "transformers", "safetensors", "gguf", "accelerate", "httpx")
_OPTIONAL = {"ray": "ray"}


class State(StrEnum):
    """What came of a check."""

    OK = "ok"
    MISSING = "missing"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at.

    Attributes:
        subject: What was looked at.
        state: Whether it will do; something missing is no problem until it is needed.
        detail: What was found, and what to do where something is amiss.
    """

    subject: str
    state: State
    detail: str


def check_readiness(
    target: str | None = None, drafter: str | None = None, *, device: str = "auto"
) -> tuple[Check, ...]:
    """Look at the installation, the device and, where they are named, at target and drafter.

    Args:
        target: Hub name, folder or GGUF file; its weights are not loaded.
        drafter: Hub name, folder or `ngram`; loaded and compared with the target's sizes.
        device: `auto` or a torch device.
    """
    checks = list(_check_packages())
    lacking = [c.subject for c in checks if c.state is State.MISSING and c.subject in _COLLECT]
    if lacking:
        if target or drafter:
            detail = f"not looked at without {', '.join(lacking)}: pip install 'dspark-calib[collect]'"
            checks.append(Check(subject="target and drafter", state=State.PROBLEM, detail=detail))
        return tuple(checks)
    checks.append(_check_device(device))
    if target is not None:
        checks += _check_models(target, drafter)
    return tuple(checks)


def _check_packages() -> Iterator[Check]:
    yield Check(subject="python", state=State.OK, detail=platform.python_version())
    yield _check_package("dspark-calib", None, "")
    for package in _BASE:
        yield _check_package(package, None, "every command")
    for package in _COLLECT:
        yield _check_package(package, "collect", "collect and profile-sps")
    for package, extra in _OPTIONAL.items():
        yield _check_package(package, extra, "--workers ray")


def _check_package(package: str, extra: str | None, needed_by: str) -> Check:
    try:
        return Check(subject=package, state=State.OK, detail=version(package))
    except PackageNotFoundError:
        name = "dspark-calib" if extra is None else f"dspark-calib[{extra}]"
        detail = f"not installed, needed by {needed_by}: pip install '{name}'"
        return Check(subject=package, state=State.PROBLEM if extra is None else State.MISSING, detail=detail)


def _check_device(device: str) -> Check:
    from dspark_calib.collection.target import choose_device

    try:
        chosen = choose_device(device)
    except DsparkCalibError as error:
        return Check(subject="device", state=State.PROBLEM, detail=str(error))
    return Check(subject="device", state=State.OK, detail=_describe_device(chosen))


def _describe_device(device: str) -> str:
    import torch

    if not device.startswith("cuda"):
        return f"{device}, {torch.get_num_threads()} threads, float32"
    properties = torch.cuda.get_device_properties(device)
    gigabytes = properties.total_memory / 1e9
    return f"{device}: {properties.name}, {gigabytes:.0f} GB, {torch.cuda.device_count()} in all, bfloat16"


def _check_models(target: str, drafter: str | None) -> Iterator[Check]:
    from dspark_calib.collection.target import describe_target, find_target

    try:
        files = find_target(target)
        description = describe_target(files)
    except DsparkCalibError as error:
        yield Check(subject="target", state=State.PROBLEM, detail=str(error))
        return
    yield _check_target(files, description)
    if drafter is not None:
        yield _check_drafter(drafter, files, description)


def _check_target(files: "TargetFiles", target: "TargetDescription") -> Check:
    gigabytes = sum(file.stat().st_size for file in files.weight_files()) / 1e9
    facts = [
        f"{gigabytes:.2f} GB of weights",
        f"vocabulary {target.vocab_size}",
        f"at most {target.max_length} tokens" if target.max_length else "longest sequence not stated",
        f"stop tokens {', '.join(map(str, target.stop_token_ids)) or 'none'}",
    ]
    if not getattr(target.tokenizer, "chat_template", None):
        facts.append("no chat template: collect from --responses FILE")
        return Check(subject="target", state=State.PROBLEM, detail="; ".join(facts))
    return Check(subject="target", state=State.OK, detail="; ".join(facts))


def _check_drafter(drafter: str, files: "TargetFiles", target: "TargetDescription") -> Check:
    """Load the drafter for a target that is all zeros: sizes, layers and tokenizer are compared as ever."""
    import torch

    from dspark_calib.drafters.loading import load_drafter
    from dspark_calib.drafters.target_parts import TargetParts

    zeros = torch.zeros(1, 1).expand(target.vocab_size, target.hidden_size)  # takes no memory
    parts = TargetParts(
        name=files.name,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        num_layers=target.num_layers,
        embed_tokens=zeros,
        lm_head=zeros,
    )
    try:
        loaded, _ = load_drafter(drafter, parts, target_tokenizer=target.tokenizer)
    except DsparkCalibError as error:
        return Check(subject="drafter", state=State.PROBLEM, detail=str(error))
    head = "confidence head" if loaded.has_confidence_head else "no confidence head: pass --confidence draft-prob"
    layers = ", ".join(map(str, loaded.target_layer_ids)) or "none"
    detail = f"fits the target; γ = {loaded.gamma}; {head}; reads target layers {layers}"
    return Check(subject="drafter", state=State.OK, detail=detail)
