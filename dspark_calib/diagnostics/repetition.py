"""Checks for data counted twice: duplicate rounds, and one prompt under two ids."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from dspark_calib.diagnostics.finding import Finding
from dspark_calib.trace.rounds import UNKNOWN_ANCHOR, Rounds
from dspark_calib.trace.store import Trace

MOST_ROUNDS = 2_000_000  # rounds looked at: 16 bytes of memory each
MIN_ROUNDS = 3  # a shared round can be chance in a tiny vocabulary; a whole prompt cannot


def check_repetition(trace: Trace) -> Iterator[Finding]:
    """Find rows that stand in the trace twice.

    A round is known by the bits of its logits, its labels, its anchor and its lengths. Twice under one prompt
    id is a duplicate; all rounds of one prompt under another id too is one prompt under two ids.
    """
    content, prompt, names = _fingerprints(trace)
    if len(content) < trace.num_rounds:
        yield Finding(
            name="repetition_seen_in_part",
            severity="note",
            count=trace.num_rounds - len(content),
            message=f"repetition was looked for in the first {len(content)} of {trace.num_rounds} rounds",
        )
    order = np.argsort(content, kind="stable")
    content, prompt = content[order], prompt[order]
    again = np.flatnonzero(content[1:] == content[:-1])
    same_prompt = prompt[again] == prompt[again + 1]
    duplicates = int(same_prompt.sum())
    if duplicates:
        yield Finding(
            name="duplicate_rounds",
            severity="stop",
            count=duplicates,
            message=f"{duplicates} rounds stand in the trace more than once (equal logits, labels and anchor); "
            "a shard was read twice or a recorder logged a stale row. Remove them",
        )
    twins = _twin_prompts(prompt[again][~same_prompt], prompt[again + 1][~same_prompt], prompt)
    if twins:
        first, second = (names[i] for i in twins[0])
        yield Finding(
            name="prompt_under_two_ids",
            severity="stop",
            count=len(twins),
            message=f"{len(twins)} prompts stand under two ids, such as {first} and {second}: folds and intervals "
            "would count them as independent. Give each prompt one id",
        )


def _fingerprints(trace: Trace) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], list[str]]:
    """Return a hash of each round, the number of its prompt (-1 without one) and the names of prompts."""
    content, prompts, seen = [], [], 0
    index: dict[tuple[str, str], int] = {}
    for rounds in trace.batches(optional=()):
        kept = rounds.take(slice(0, MOST_ROUNDS - seen))
        content.append(_row_hashes(kept))
        prompts.append(_prompt_numbers(kept, index))
        seen += len(kept)
        if seen >= MOST_ROUNDS:
            break
    return np.concatenate(content), np.concatenate(prompts), [f"{dataset}/{prompt}" for dataset, prompt in index]


def _row_hashes(rounds: Rounds) -> npt.NDArray[np.uint64]:
    """Mix the bits of what tells rounds apart; equal rounds give equal hashes."""
    columns: list[npt.NDArray[np.generic]] = [
        np.ascontiguousarray(rounds.confidence_logits[:, k]).view(np.uint32) for k in range(rounds.gamma)
    ]
    columns += [rounds.accepted, rounds.observed, rounds.prompt_length, rounds.response_length, rounds.replicate]
    columns.append(np.where(rounds.anchor == UNKNOWN_ANCHOR, 0, rounds.anchor))
    total = np.zeros(len(rounds), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            total = (total ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            total ^= total >> np.uint64(29)
    return total


def _prompt_numbers(rounds: Rounds, index: dict[tuple[str, str], int]) -> npt.NDArray[np.int64]:
    pair = rounds.dataset.codes.astype(np.int64) * (len(rounds.prompt_id.names) + 1) + rounds.prompt_id.codes
    first, inverse = np.unique(pair, return_index=True, return_inverse=True)[1:]
    numbers = []
    for row in first.tolist():
        prompt = rounds.prompt_id.codes[row]
        if prompt < 0:
            numbers.append(-1)
            continue
        key = (rounds.dataset.names[rounds.dataset.codes[row]], rounds.prompt_id.names[prompt])
        numbers.append(index.setdefault(key, len(index)))
    return np.array(numbers, dtype=np.int64)[inverse]


def _twin_prompts(
    one: npt.NDArray[np.int64], other: npt.NDArray[np.int64], prompt: npt.NDArray[np.int64]
) -> list[tuple[int, int]]:
    """Return pairs of prompts of which the smaller has every round in the other too."""
    named = (one >= 0) & (other >= 0)
    pairs, shared = np.unique(np.stack([one[named], other[named]], axis=1), axis=0, return_counts=True)
    rounds = np.bincount(prompt[prompt >= 0])
    smaller = np.minimum(rounds[pairs[:, 0]], rounds[pairs[:, 1]]) if len(pairs) else shared
    twins = pairs[(shared >= smaller) & (shared >= MIN_ROUNDS)]
    return [(int(a), int(b)) for a, b in twins]
