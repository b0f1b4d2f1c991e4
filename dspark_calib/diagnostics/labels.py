"""Checks on what the labels mean: censoring, and what collecting or joining the trace noticed."""

from collections.abc import Iterator

from dspark_calib.diagnostics.finding import Finding
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.trace.store import Trace

_MESSAGES = {
    "mixed_laws": "{count} rounds differ from the others in label law or sampling temperature; one set of temperatures "
    "then fits neither part. Fit each part alone",
    "responses_not_from_target": "{count} responses are not what the target would have written at that temperature; "
    "their acceptance says nothing of serving. Generate them with the target",
}
_OTHER = "counted {count} times when the trace was made; see the notes in trace.json"


def check_censoring(judged: JudgedTrace) -> Iterator[Finding]:
    """Find rounds whose labels a scheduler withheld: observed < γ, not explained by an accepted EOS or the limit."""
    cut = judged.acceptance.censored
    if cut:
        yield Finding(
            name="censored_rounds",
            severity="stop",
            count=cut,
            message=f"{cut} of {judged.rounds} rounds were cut before γ = {judged.gamma} drafts were judged; their "
            "prefix labels are missing by choice of a scheduler. Collect with full verification, or accept it: "
            "temperatures are then fitted on conditional confidences, which stay valid where drafts were judged",
        )


def check_provenance_findings(trace: Trace) -> Iterator[Finding]:
    """Pass on what was counted when the trace was made, such as responses that the target did not write."""
    for name, count in sorted(trace.provenance.findings.items()):
        if count:
            yield Finding(
                name=name,
                severity="stop",
                count=count,
                message=_MESSAGES.get(name, _OTHER).format(count=count),
            )
    for reason, count in sorted(trace.provenance.refused.items()):
        if count:
            yield Finding(
                name="refused_rows", severity="note", count=count, message=f"the import refused {count} rows: {reason}"
            )
