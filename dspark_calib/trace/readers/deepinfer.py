"""DeepInfer's statistics: the `[stats]` lines of its log (0.1.0, `StatsLogger`).

Each line carries, for a sliding window of about one logging interval, the prefix acceptance rate of every
position (`nextn_accept_rate [81.25%, 60.00%]`) and the totals `verified_tokens`, `accepted_tokens` and
`avg_verified_len`. Counts follow only where every block was verified whole (DEEPINFER_ENABLE_MTP_VARLEN off).
`avg_confidence_error` covers positions behind a rejection too, so no calibration can be read from it.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.readers.acceptance import AcceptanceCounts
from dspark_calib.trace.readers.sources import hash_sources
from dspark_calib.trace.readers.tally import Tally
from dspark_calib.trace.readers.untrusted import iter_log_lines

_SOURCE = "import deepinfer"
_MARK = "[stats] ("
_STEP = re.compile(r"RANK (\d{1,9}), GPU \d{1,9}, step (\d{1,15}),")
_RATES = re.compile(r"\bnextn_accept_rate \[([0-9.%, ]*)\]")
_VERIFIED = re.compile(r"\bverified_tokens (\d{1,15})\b")
_ACCEPTED = re.compile(r"\baccepted_tokens (\d{1,15})\b")
_LENGTH = re.compile(r"\bavg_verified_len (\d{1,6}\.\d\d)\b")
_UNKNOWN = "unknown layout of the [stats] line (this reader knows DeepInfer 0.1.0)"
_VARLEN = "blocks verified in part (turn DEEPINFER_ENABLE_MTP_VARLEN off to measure)"
_OVERLAP = "DeepInfer's windows overlap by one step of the logging interval; those rounds count twice."


def read_deepinfer(paths: Sequence[Path]) -> AcceptanceCounts:
    """Read the `[stats]` lines of DeepInfer logs into counts per position.

    Lines of an unknown layout, of blocks verified in part, without drafts, or repeated by another rank of the
    same step are refused and counted.

    Raises:
        TraceFormatError: If a file has no such line, block sizes differ, or no line is usable.
    """
    hash_sources(paths)  # refuses a file given twice
    tally = Tally(decimals=4)
    for path in paths:
        ranks: dict[tuple[str, ...], str] = {}
        for number, line in iter_log_lines(path):
            if _MARK in line:
                _read_line(line, f"{path}, line {number}", ranks, tally)
    if not tally.windows + tally.refused.counts.total():
        raise TraceFormatError(f"{paths[0]}: no DeepInfer '[stats]' line in it; set DEEPINFER_LOGGING_INTERVAL_STEP")
    return tally.counts(_SOURCE, str(paths[0]), (_OVERLAP,))


def _read_line(line: str, where: str, ranks: dict[tuple[str, ...], str], tally: Tally) -> None:
    found = [pattern.search(line) for pattern in (_RATES, _VERIFIED, _ACCEPTED, _LENGTH)]
    values = [match[1] for match in found if match]
    rates = _fractions(values[0]) if len(values) == len(found) else None
    if rates is None:
        tally.refused.refuse(_UNKNOWN)
        return
    if _another_rank(line, values, ranks):
        tally.refused.refuse("repeated by another rank of the same step")
    elif int(values[1]) and abs(float(values[3]) - len(rates)) > 0.005:
        tally.refused.refuse(_VARLEN)
    else:
        tally.add(rates, int(values[1]), int(values[2]), where)


def _another_rank(line: str, values: list[str], ranks: dict[tuple[str, ...], str]) -> bool:
    """Tensor-parallel ranks log the same numbers for the same step; data-parallel ones log their own."""
    match = _STEP.search(line)
    if match is None:
        return False
    first = ranks.setdefault((match[2], *values), match[1])
    return first != match[1]


def _fractions(text: str) -> list[float] | None:
    try:
        return [float(part.strip().removesuffix("%")) / 100 for part in text.split(",")]
    except ValueError:
        return None
