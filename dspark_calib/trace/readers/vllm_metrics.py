"""vLLM's speculative decoding metrics: Prometheus text, or its log lines (vllm/v1/spec_decode/metrics.py).

Counters per position only. vLLM divides by the number of drafts and keeps no count of how often a position
was verified, so under adaptive verification its per-position numbers are lower bounds.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.readers.acceptance import AcceptanceCounts, check_counts
from dspark_calib.trace.readers.imported import RowAccount
from dspark_calib.trace.readers.sources import hash_sources
from dspark_calib.trace.readers.tally import Tally
from dspark_calib.trace.readers.untrusted import iter_log_lines

_SOURCE = "import vllm-metrics"
_LOG_LINE = "SpecDecoding metrics:"
_RATES = re.compile(r"Per-position acceptance rate: ([0-9.]+(?:, [0-9.]+)*)")
_ACCEPTED = re.compile(r"\bAccepted: (\d{1,15}) tokens")
_DRAFTED = re.compile(r"\bDrafted: (\d{1,15}) tokens")
_SERIES = re.compile(
    r"vllm:spec_decode_num_(?P<name>drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)(?:_total)?"
    r"(?:\{(?P<labels>.*)\})? (?P<value>[-+.0-9eE]+|NaN|[-+]?Inf)(?: -?\d+)?"
)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_MAX_POSITION = 4096
_CENSORED = (
    "vLLM drafted fewer tokens than γ a draft (adaptive verification) and does not count how often a position was "
    "verified: the rates of deeper positions are lower bounds."
)
_ROUNDED = "Counts were recovered from rates with 3 decimals and exact token totals."

_Engine = frozenset[tuple[str, str]]
_Values = dict[tuple[str, int], int]


def read_vllm_metrics(paths: Sequence[Path]) -> AcceptanceCounts:
    """Read Prometheus text or log files of vLLM into counts per position.

    Log lines whose rates and totals contradict each other are refused and counted. Engines (label sets) of
    the Prometheus text are added up.

    Raises:
        TraceFormatError: If a file holds neither, counters are missing or impossible, positions differ between
            lines or engines, the same counters come twice, or nothing is usable.
    """
    hash_sources(paths)  # refuses a file given twice
    engines: dict[_Engine, _Values] = {}
    tally = Tally(decimals=3)
    for path in paths:
        _read_file(path, engines, tally)
    lines = tally.windows + tally.refused.counts.total()
    if engines and lines:
        raise TraceFormatError(
            f"{paths[0]}: log lines and Prometheus counters tell the same rounds twice; give one kind"
        )
    if engines:
        return _from_counters(engines, str(paths[0]))
    if not lines:
        raise TraceFormatError(f"{paths[0]}: neither a {_LOG_LINE!r} log line nor a vllm:spec_decode_ counter in it")
    return tally.counts(_SOURCE, str(paths[0]), (_ROUNDED,))


def _read_file(path: Path, engines: dict[_Engine, _Values], tally: Tally) -> None:
    found: dict[_Engine, _Values] = defaultdict(dict)
    for number, line in iter_log_lines(path):
        where = f"{path}, line {number}"
        if _LOG_LINE in line:
            _read_log_line(line, where, tally)
        elif line.startswith("vllm:spec_decode_num_"):
            _read_series(line.strip(), where, found)
    repeated = set(found) & set(engines)
    if repeated:
        labels = ", ".join(f"{k}={v}" for k, v in sorted(next(iter(repeated)))) or "no labels"
        raise TraceFormatError(
            f"{path}: counters of the same engine ({labels[:80]}) as an earlier file; give one snapshot"
        )
    engines |= found


def _read_log_line(line: str, where: str, tally: Tally) -> None:
    rates, accepted, drafted = _RATES.search(line), _ACCEPTED.search(line), _DRAFTED.search(line)
    if not (rates and accepted and drafted):
        tally.refused.refuse("unknown layout of the log line")
        return
    try:
        values = [float(rate) for rate in rates[1].split(", ")]
    except ValueError:
        tally.refused.refuse("unknown layout of the log line")
        return
    tally.add(values, int(drafted[1]), int(accepted[1]), where)


def _read_series(line: str, where: str, found: dict[_Engine, _Values]) -> None:
    match = _SERIES.fullmatch(line)
    if match is None:
        if "_created" in line.split(" ", 1)[0]:
            return
        raise TraceFormatError(f"{where}: not a counter in the Prometheus text format")
    labels = dict(_LABEL.findall(match["labels"] or ""))
    position = _position(labels.pop("position", None), match["name"], where)
    value = _whole(match["value"], where)
    values = found[frozenset(labels.items())]
    if (match["name"], position) in values:
        raise TraceFormatError(f"{where}: the same counter twice; give one scrape, not several behind each other")
    values[match["name"], position] = value


def _position(text: str | None, name: str, where: str) -> int:
    """Return the 0-based position label, -1 for counters without one."""
    if name != "accepted_tokens_per_pos":
        return -1
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 4 or int(text) >= _MAX_POSITION:
        raise TraceFormatError(f"{where}: the position label is missing or no number below {_MAX_POSITION}")
    return int(text)


def _whole(text: str, where: str) -> int:
    try:
        value = float(text)
        whole = int(value)
    except (ValueError, OverflowError) as error:
        raise TraceFormatError(f"{where}: the value is no count") from error
    if value < 0 or whole != value:
        raise TraceFormatError(f"{where}: the value {text[:40]} is no count")
    return whole


def _from_counters(engines: Mapping[_Engine, _Values], where: str) -> AcceptanceCounts:
    gamma = max((position + 1 for values in engines.values() for _, position in values), default=0)
    for values in engines.values():
        missing = [k for k in range(gamma) if ("accepted_tokens_per_pos", k) not in values]
        if ("drafts", -1) not in values or missing or not gamma:
            raise TraceFormatError(
                f"{where}: an engine lacks num_drafts or some of {gamma} positions; engines of different block size "
                "must be imported one by one"
            )
    drafts = sum(values["drafts", -1] for values in engines.values())
    tokens = sum(values.get(("draft_tokens", -1), gamma * values["drafts", -1]) for values in engines.values())
    accepted = tuple(sum(v["accepted_tokens_per_pos", k] for v in engines.values()) for k in range(gamma))
    counts = AcceptanceCounts(
        source=_SOURCE,
        rounds=drafts,
        verified=(drafts,) * gamma,
        accepted=accepted,
        account=RowAccount(read=len(engines), kept=len(engines), refused=()),
        notes=(_CENSORED,) if tokens < gamma * drafts else (),
    )
    return check_counts(counts, where)
