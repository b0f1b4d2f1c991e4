"""Checks on the confidence values themselves: a temperature already in them, probabilities in place of logits."""

from collections.abc import Iterator

import numpy as np

from dspark_calib.diagnostics.finding import Finding
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.trace.store import Trace


def check_applied_temperature(trace: Trace, judged: JudgedTrace) -> Iterator[Finding]:
    """Find logits that were logged after calibration: fitting them would calibrate twice."""
    applied = trace.provenance.calibration_applied
    if applied is not None and any(t != 1.0 for t in applied):
        yield Finding(
            name="already_calibrated",
            severity="stop",
            count=judged.rounds,
            message=f"the logits already carry temperatures {list(applied)}; log raw logits, or divide nothing twice",
        )


def check_logit_range(judged: JudgedTrace) -> Iterator[Finding]:
    """Find values that all lie in [0, 1] (probabilities, not logits) and values without spread."""
    low, high = np.full(judged.gamma, np.inf), np.full(judged.gamma, -np.inf)
    for batch in judged.batches():
        low, high = np.minimum(low, batch.logits.min(axis=0)), np.maximum(high, batch.logits.max(axis=0))
    if judged.rounds > 1 and low.min() >= 0 and high.max() <= 1:
        yield Finding(
            name="looks_like_probabilities",
            severity="stop",
            count=judged.rounds,
            message=f"all {judged.rounds * judged.gamma} confidence logits lie in [0, 1]; probabilities were logged in "
            "their place. Log logits, or accept it if they truly are logits",
        )
    flat = np.flatnonzero(low == high) + 1
    if judged.rounds > 1 and len(flat):
        yield Finding(
            name="constant_confidence",
            severity="warning",
            count=judged.rounds,
            positions=tuple(flat.tolist()),
            message=f"the logit never changes at position {', '.join(map(str, flat.tolist()))}; no temperature fits it",
        )
