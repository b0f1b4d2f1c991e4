"""Several traces as one, when they may be mixed."""

from collections.abc import Sequence
from dataclasses import replace

from dspark_calib.errors import IncompatibleTraces
from dspark_calib.trace.provenance import Provenance
from dspark_calib.trace.store import Trace


def combine_traces(traces: Sequence[Trace], *, allow_mixed: bool = False) -> Trace:
    """Return one trace with the rows of all, in the order given.

    Args:
        traces: At least one.
        allow_mixed: Join traces of different checkpoint, confidence, law, temperature or anchor policy all the same.

    Raises:
        ValueError: If `traces` is empty.
        IncompatibleTraces: If γ differs, the same trace comes twice, or they differ otherwise without `allow_mixed`.
    """
    if not traces:
        raise ValueError("combine_traces needs at least one trace")
    first, *others = traces
    for other in others:
        _refuse_mixture(first, other, allow_mixed=allow_mixed)
    _refuse_repetition(traces)
    if not others:
        return first
    return Trace(
        provenance=_merged([t.provenance for t in traces]),
        sources=tuple(source for t in traces for source in t.sources),
        name=" + ".join(t.name for t in traces),
    )


def _refuse_mixture(first: Trace, other: Trace, *, allow_mixed: bool) -> None:
    a, b = _identity(first.provenance), _identity(other.provenance)
    for field in a:
        if a[field] != b[field] and (field == "gamma" or not allow_mixed):
            way_out = "" if field == "gamma" else "; pass --allow-mixed to join them all the same"
            raise IncompatibleTraces(
                f"{first.name} and {other.name} differ in {field}: {a[field]!r} against {b[field]!r}{way_out}"
            )


def _identity(p: Provenance) -> dict[str, object]:
    return {
        "gamma": p.gamma,
        "target": p.target.content_hash or p.target.name,
        "drafter": p.drafter.content_hash or p.drafter.name,
        "confidence_source": p.confidence_source,
        "label_law": p.label_law,
        "temperature": p.temperature,
        "anchor_policy": p.anchor_policy,
        "calibration_applied": p.calibration_applied,
    }


def _refuse_repetition(traces: Sequence[Trace]) -> None:
    if len(traces) < 2:
        return
    seen: dict[str, str] = {}
    for trace in traces:
        if trace.content_hash in seen:
            raise IncompatibleTraces(
                f"{seen[trace.content_hash]} and {trace.name} hold the same rounds; name one of them"
            )
        seen[trace.content_hash] = trace.name


def _merged(parts: Sequence[Provenance]) -> Provenance:
    first = parts[0]
    findings: dict[str, int] = {}
    for part in parts:
        for name, count in part.findings.items():
            findings[name] = findings.get(name, 0) + count
    strangers = sum(p.rounds for p in parts if (p.label_law, p.temperature) != (first.label_law, first.temperature))
    if strangers:
        findings["mixed_laws"] = findings.get("mixed_laws", 0) + strangers
    return replace(
        first,
        prompt_files={name: digest for p in parts for name, digest in p.prompt_files.items()},
        source_files={name: digest for p in parts for name, digest in p.source_files.items()},
        rounds=sum(p.rounds for p in parts),
        prompts=sum(p.prompts for p in parts),
        findings=findings,
        notes=tuple(dict.fromkeys(note for p in parts for note in p.notes)),
    )
