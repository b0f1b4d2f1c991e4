"""SGLang's step records: `GET /server_info` with `SGLANG_DSPARK_DEBUG_DUMP=core,reqs`.

`internal_states[i].dspark_info_record` holds `gamma`, `mode` and `records[]`, one a decode step, each with
`reqs[]`: `rid`, `prefix_len`, `verify_len`, `correct_drafts`, `cap_trim`, `confidence[]` (the fields of
`ReqDetail` in dspark_info_dumper.py). Confidences are probabilities with 4 decimals, and carry the STS
temperatures if the server was given any.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dspark_calib.errors import TraceFormatError
from dspark_calib.survival import scaled_logits
from dspark_calib.trace.labels import Labels
from dspark_calib.trace.provenance import Provenance
from dspark_calib.trace.readers.imported import NO_PROMPT_IDS, Block, Imported, RefusedRows, block_rounds, finish
from dspark_calib.trace.readers.numbers import as_count, as_float32, as_number
from dspark_calib.trace.readers.rounding import rounded_logits
from dspark_calib.trace.readers.sources import hash_sources
from dspark_calib.trace.readers.untrusted import read_json
from dspark_calib.trace.readers.wording import shown, shown_names
from dspark_calib.trace.rounds import Rounds

DECIMALS = 4
CAP_ACCEPT = "cap-accept"
_TABLE_KEY = "speculative_dspark_confidence_sts_path"
_SAMPLING_KEY = "speculative_use_rejection_sampling"
_MAX_GAMMA = 4096
_ROUNDED = (
    "SGLang writes confidences with 4 decimals: logits beyond ±9 are known only to their rounding interval "
    "(confidence_decimals in trace.json)."
)
_UNKNOWN_TABLE = "The dump does not say whether the server applied STS temperatures; the confidences are taken as raw."
_CUT = "Windows cut by the scheduler observe only their own length: positions are missing where confidence was low."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    rid: str | None
    anchor: int
    accepted: int
    observed: int
    probabilities: list[float]
    draft_tokens: list[int]


@dataclass(slots=True)
class _Dump:
    """What one read has gathered so far, over all files."""

    gamma: int = 0
    requests: list[_Request] = field(default_factory=list)
    refused: RefusedRows = field(default_factory=RefusedRows)
    seen: set[bytes] = field(default_factory=set)
    tables: set[bool | None] = field(default_factory=set)
    sampling: set[bool | None] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)


def read_sglang_server_info(paths: Sequence[Path], temperatures: Sequence[float] | None = None) -> Imported:
    """Read dumps; `rid` is the prompt id.

    Requests without confidences, without a verified draft, or already read from an earlier dump of the same
    ring buffer are refused and counted.

    Args:
        paths: Saved answers of `/server_info`, or their `dspark_info_record`.
        temperatures: The STS temperatures the server applied, length γ; confidences are un-scaled by them.

    Raises:
        TraceFormatError: For a file that is no dump, an unknown layout, simulated acceptance, a request whose
            counts contradict each other, mixed γ, temperatures that are missing or too many, or no usable row.
    """
    hashes = hash_sources(paths)
    dump = _Dump()
    for path in paths:
        _read_file(path, dump)
    _check_temperatures(dump, temperatures, str(paths[0]))
    batches = [_rounds(dump, temperatures)] if dump.requests else []
    provenance = replace(_provenance(dump, temperatures), source_files=hashes)
    return finish(batches, dump.refused, provenance, str(paths[0]))


def _read_file(path: Path, dump: _Dump) -> None:
    content = read_json(path)
    if not isinstance(content, dict):
        raise TraceFormatError(f"{path}: expected the JSON object of /server_info, found {type(content).__name__}")
    if isinstance(content.get("version"), str):
        dump.versions.add(content["version"][:40])
    dump.tables.add(bool(content[_TABLE_KEY]) if _TABLE_KEY in content else None)
    dump.sampling.add(content[_SAMPLING_KEY] if isinstance(content.get(_SAMPLING_KEY), bool) else None)
    found = list(_info_records(content, str(path)))
    if not found:
        version = f" (version {shown(content['version'])})" if "version" in content else ""
        raise TraceFormatError(
            f"{path}: no dspark_info_record in this server_info{version}; start SGLang with "
            f"SGLANG_DSPARK_DEBUG_DUMP=core,reqs. It holds {shown_names(content)}"
        )
    for where, record in found:
        _read_info_record(record, where, dump)


def _info_records(content: Mapping[str, Any], where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if "records" in content and "gamma" in content:
        yield where, content
    states = content.get("internal_states")
    for index, state in enumerate(states if isinstance(states, list) else []):
        record = state.get("dspark_info_record") if isinstance(state, dict) else None
        if isinstance(record, dict):
            yield f"{where}, internal_states[{index}]", record
    record = content.get("dspark_info_record")
    if isinstance(record, dict):
        yield where, record


def _read_info_record(info: Mapping[str, Any], where: str, dump: _Dump) -> None:
    gamma = as_count(info.get("gamma"), f"{where}, gamma", _MAX_GAMMA)
    if gamma == 0 or (dump.gamma and gamma != dump.gamma):
        raise TraceFormatError(f"{where}, gamma = {gamma}: other dumps have {dump.gamma}; import them one by one")
    dump.gamma = gamma
    if info.get("simulate_acc_len"):
        raise TraceFormatError(
            f"{where}: acceptance was simulated (SGLANG_SIMULATE_ACC_LEN); nothing can be calibrated"
        )
    for index, step in enumerate(_objects(info.get("records"), f"{where}, records")):
        here = f"{where}, records[{index}]"
        mode = step.get("mode") or info.get("mode") or ""
        for row, request in enumerate(_objects(step.get("reqs") or [], f"{here}, reqs")):
            _read_request(request, step, mode, f"{here}, reqs[{row}]", dump)


def _read_request(request: Mapping[str, Any], step: Mapping[str, Any], mode: object, where: str, dump: _Dump) -> None:
    if request.get("confidence") is None:
        dump.refused.refuse("no confidence (static mode builds no head)")
        return
    parsed = _request(request, mode, where, dump.gamma)
    key = hashlib.sha256(f"{shown(step.get('forward_ct'))} {parsed}".encode(errors="surrogatepass")).digest()
    if key in dump.seen:
        dump.refused.refuse("already in an earlier dump of the same ring buffer")
    elif not all(np.isfinite(parsed.probabilities)):
        dump.refused.refuse("confidence not finite")
    elif parsed.observed == 0:
        dump.refused.refuse("no draft verified")
    else:
        dump.requests.append(parsed)
    dump.seen.add(key)


def _request(request: Mapping[str, Any], mode: object, where: str, gamma: int) -> _Request:
    if "verify_len" not in request or "acc_len" not in request:
        raise TraceFormatError(
            f"{where}: unknown layout, verify_len or acc_len is missing; it holds {shown_names(request)}"
        )
    confidence = request["confidence"]
    if not isinstance(confidence, list) or len(confidence) != gamma:
        raise TraceFormatError(f"{where}, confidence: expected a list of γ = {gamma} probabilities")
    probabilities = [as_number(p, f"{where}, confidence") for p in confidence]
    if any(p < 0 or p > 1 for p in probabilities):
        raise TraceFormatError(f"{where}, confidence: not a probability; this reader takes the 4-decimal probabilities")
    accepted, observed = _labels(request, mode, where, gamma)
    rid = request.get("rid")
    if not isinstance(rid, str | None):
        raise TraceFormatError(f"{where}, rid: expected text, found {shown(rid)}")
    return _Request(
        rid=rid,
        anchor=as_count(request.get("prefix_len", 0), f"{where}, prefix_len"),
        accepted=accepted,
        observed=observed,
        probabilities=probabilities,
        draft_tokens=_draft_tokens(request.get("draft_tokens"), gamma),
    )


def _labels(request: Mapping[str, Any], mode: object, where: str, gamma: int) -> tuple[int, int]:
    """Return (accepted, observed).

    acc_len counts the committed tokens, bonus included. Under `cap-accept` the whole block was verified and
    acceptance capped afterwards, so what the cap took off (`cap_trim`) was accepted. Otherwise a window of
    verify_len tokens, the anchor among them, checked verify_len - 1 drafts.
    """
    committed = as_count(request["acc_len"], f"{where}, acc_len")
    correct = as_count(request.get("correct_drafts", 0), f"{where}, correct_drafts")
    trimmed = as_count(request.get("cap_trim", 0), f"{where}, cap_trim")
    window = as_count(request["verify_len"], f"{where}, verify_len", gamma + 1)
    accepted = committed + trimmed - 1
    if accepted < 0 or correct not in (accepted, committed - 1):
        raise TraceFormatError(
            f"{where}: correct_drafts {correct}, acc_len {committed} and cap_trim {trimmed} contradict each other"
        )
    observed = gamma if mode == CAP_ACCEPT else max(window - 1, 0)
    if accepted > observed:
        raise TraceFormatError(f"{where}: {accepted} drafts accepted in a window that verified {observed}")
    return accepted, observed


def _draft_tokens(value: object, gamma: int) -> list[int]:
    """Return γ token ids, an empty list where the record has another form; the anchor may lead them."""
    if not isinstance(value, list) or not all(type(t) is int and -(2**31) <= t < 2**31 for t in value):
        return []
    return value[-gamma:] if len(value) in (gamma, gamma + 1) else []


def _objects(value: object, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TraceFormatError(f"{where}: unknown layout, expected a list of objects, found {shown(value)}")
    return value


def _check_temperatures(dump: _Dump, temperatures: Sequence[float] | None, where: str) -> None:
    if temperatures is None and True in dump.tables:
        raise TraceFormatError(
            f"{where}: the server applied an STS table ({_TABLE_KEY}); give it with --calibration so that raw "
            "logits can be had back"
        )
    if temperatures is not None and dump.tables == {False}:
        raise TraceFormatError(f"{where}: the server says it applied no STS table; leave --calibration out")
    if temperatures is not None and dump.gamma and len(temperatures) != dump.gamma:
        raise TraceFormatError(f"{where}: γ = {dump.gamma}, but the calibration holds {len(temperatures)} temperatures")


def _rounds(dump: _Dump, temperatures: Sequence[float] | None) -> Rounds:
    rids = Labels.encode(r.rid for r in dump.requests)
    order = np.argsort(np.where(rids.codes < 0, len(rids.names), rids.codes), kind="stable")
    requests = [dump.requests[i] for i in order.tolist()]
    logits = rounded_logits([r.probabilities for r in requests], DECIMALS)
    if temperatures is not None:  # the server divided by T, so dividing by 1/T gives the raw logit back
        logits = scaled_logits(logits, 1.0 / np.asarray(temperatures, dtype=np.float64))
    observed = np.array([r.observed for r in requests])
    tokens = [r.draft_tokens for r in requests]
    block = Block(
        logits=as_float32(logits),
        accepted=np.array([r.accepted for r in requests]),
        observed=observed,
        verified=observed,
        anchor=np.array([r.anchor for r in requests]),
        draft_tokens=np.array(tokens, dtype=np.int32) if all(tokens) else None,
    )
    return block_rounds(block, dataset="sglang", prompt_ids=rids.take(order))


def _provenance(dump: _Dump, temperatures: Sequence[float] | None) -> Provenance:
    laws = {True: "sampled", False: "greedy", None: None}
    notes = [_ROUNDED]
    if temperatures is None and None in dump.tables:
        notes.append(_UNKNOWN_TABLE)
    if any(r.observed < dump.gamma for r in dump.requests):
        notes.append(_CUT)
    if any(r.rid is None for r in dump.requests):
        notes.append(NO_PROMPT_IDS)
    return Provenance(
        gamma=dump.gamma,
        source="import sglang-server-info",
        label_law=laws[next(iter(dump.sampling))] if len(dump.sampling) == 1 else None,
        anchor_policy="loop",
        versions={"sglang": ", ".join(sorted(dump.versions))} if dump.versions else {},
        confidence_decimals=DECIMALS,
        notes=tuple(notes),
    )
