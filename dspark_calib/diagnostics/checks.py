"""All checks on a trace in one call."""

from dspark_calib.diagnostics.finding import Finding
from dspark_calib.diagnostics.labels import check_censoring, check_provenance_findings
from dspark_calib.diagnostics.logits import check_applied_temperature, check_logit_range
from dspark_calib.diagnostics.pairing import check_pairing
from dspark_calib.diagnostics.repetition import check_repetition
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.trace.store import Trace

_ORDER = {"stop": 0, "warning": 1, "note": 2}


def check_trace(trace: Trace, judged: JudgedTrace | None = None) -> tuple[Finding, ...]:
    """Return what the checks found, worst first; empty where they found nothing.

    Args:
        trace: The trace.
        judged: The same trace as already read for statistics; read here when None.
    """
    read = JudgedTrace(trace) if judged is None else judged
    found = [
        *check_provenance_findings(trace),
        *check_applied_temperature(trace, read),
        *check_logit_range(read),
        *check_censoring(read),
        *check_pairing(read),
        *check_repetition(trace),
    ]
    return tuple(sorted(found, key=lambda finding: _ORDER[finding.severity]))
