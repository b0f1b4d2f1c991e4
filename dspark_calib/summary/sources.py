"""What a report is about: one trace under judgement, other drafters beside it, counters without rounds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from dspark_calib.calibration import Calibration
from dspark_calib.errors import CalibrationFileError, IncompatibleTraces
from dspark_calib.metrics.acceptance import Acceptance
from dspark_calib.metrics.estimate import Estimate
from dspark_calib.summary.details import Drafter
from dspark_calib.summary.record import Model, Source
from dspark_calib.trace import Trace, combine_traces
from dspark_calib.trace.provenance import Checkpoint, Provenance
from dspark_calib.trace.readers.acceptance import AcceptanceCounts

NO_CHECKPOINT = "not recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCounts:
    """Acceptance counts with the name they go by."""

    name: str
    counts: AcceptanceCounts


def split_traces(traces: Sequence[Trace], *, allow_mixed: bool = False) -> tuple[Trace, tuple[Trace, ...]]:
    """Return the trace under judgement and one for each other drafter of the same target.

    Traces of one drafter are joined; the drafter of the first is judged, the others are laid beside it.

    Args:
        traces: At least one, in the order given.
        allow_mixed: Join all of them into one whatever their drafters.

    Raises:
        IncompatibleTraces: If targets differ, or traces of one drafter must not be joined.
    """
    if allow_mixed:
        return combine_traces(traces, allow_mixed=True), ()
    target = _identity(traces[0].provenance.target)
    by_drafter: dict[str, list[Trace]] = {}
    for trace in traces:
        if _identity(trace.provenance.target) != target:
            raise IncompatibleTraces(
                f"{traces[0].name} and {trace.name} have different targets ({target} and "
                f"{_identity(trace.provenance.target)}); drafters are laid side by side for one target only"
            )
        key = f"{_identity(trace.provenance.drafter)} {trace.provenance.confidence_source} {trace.gamma}"
        by_drafter.setdefault(key, []).append(trace)
    first, *others = (combine_traces(group) for group in by_drafter.values())
    return first, tuple(others)


def check_calibration(trace: Trace, calibration: Calibration, file: str) -> None:
    """Refuse temperatures that were fitted on another checkpoint or for another block.

    Raises:
        CalibrationFileError: Naming both hashes, or both lengths.
    """
    if len(calibration.temperatures) != trace.gamma:
        raise CalibrationFileError(
            f"{file} holds {len(calibration.temperatures)} temperatures, {trace.name} has γ = {trace.gamma}; "
            "fit on a trace of this drafter"
        )
    for role in ("drafter", "target"):
        fitted, traced = getattr(calibration, role), getattr(trace.provenance, role)
        if _hashes_differ(fitted, traced):
            raise CalibrationFileError(
                f"{file} was fitted on the {role} {_words(fitted)}, {trace.name} was collected with {_words(traced)}; "
                "fit on this trace or name the calibration that belongs to it"
            )


def source_of(trace: Trace, clusters: str, domains: tuple[str, ...], datasets: tuple[str, ...]) -> Source:
    """Return where the rounds came from, for the report."""
    provenance = trace.provenance
    return Source(
        gamma=trace.gamma,
        target=_model(provenance.target),
        drafter=_model(provenance.drafter),
        confidence_source=provenance.confidence_source,
        label_law=provenance.label_law,
        temperature=provenance.temperature,
        anchor_policy=provenance.anchor_policy,
        seed=provenance.seed,
        content_hash=trace.content_hash,
        versions=dict(provenance.versions),
        notes=_notes(provenance),
        clusters=clusters,
        domains=domains,
        datasets=datasets,
    )


def drafter_names(traces: Sequence[Trace]) -> tuple[str, ...]:
    """Return a name for each trace by which a reader tells them apart."""
    names = [_drafter_name(trace.provenance) for trace in traces]
    return tuple(
        name if names.count(name) == 1 else f"{name} ({trace.name})" for name, trace in zip(names, traces, strict=True)
    )


def counted_drafter(named: NamedCounts) -> Drafter:
    """Return the acceptance of counters: rates without intervals, since counters do not know prompts."""
    counts = named.counts
    before = (counts.rounds, *counts.accepted[:-1])
    lengths = (*(b - a for b, a in zip(before, counts.accepted, strict=True)), counts.accepted[-1])
    acceptance = Acceptance(
        prefix=tuple(Estimate(value=value) for value in counts.prefix),
        conditional=tuple(Estimate(value=value) for value in counts.conditional),
        judged=before,
        accepted_length=Estimate(value=counts.accepted_length),
        lengths=lengths,
    )
    return Drafter(name=named.name, rounds=counts.rounds, acceptance=acceptance, source="counters")


def counters_source(counts: Sequence[NamedCounts]) -> Source:
    """Return the source of a report that has counters only."""
    nobody = Model(name=None, content_hash=None)
    return Source(
        gamma=max(named.counts.gamma for named in counts),
        target=nobody,
        drafter=replace(nobody, name=counts[0].name),
        confidence_source="none",
        label_law=None,
        temperature=None,
        anchor_policy=None,
        seed=None,
        content_hash=None,
        versions={},
        notes=tuple(dict.fromkeys(note for named in counts for note in named.counts.notes)),
        clusters="nothing: counters know no prompts",
        domains=(),
        datasets=(),
    )


def _identity(checkpoint: Checkpoint) -> str:
    return checkpoint.content_hash or checkpoint.name or NO_CHECKPOINT


def _hashes_differ(fitted: Checkpoint, traced: Checkpoint) -> bool:
    known = fitted.content_hash is not None and traced.content_hash is not None
    return known and fitted.content_hash != traced.content_hash


def _words(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.name or 'unnamed'} ({checkpoint.content_hash or NO_CHECKPOINT})"


def _model(checkpoint: Checkpoint) -> Model:
    return Model(name=_public_name(checkpoint.name), content_hash=checkpoint.content_hash)


def _public_name(name: str | None) -> str | None:
    """Return a hub name as it is and of a path only its end: a report says nothing of the machine that made it."""
    if name is None or not name.startswith(("/", ".", "~")):
        return name
    return PurePath(name).name or name


def _drafter_name(provenance: Provenance) -> str:
    name = _public_name(provenance.drafter.name) or provenance.source
    return name if provenance.confidence_source == "head" else f"{name} ({provenance.confidence_source})"


def _notes(provenance: Provenance) -> tuple[str, ...]:
    if provenance.confidence_decimals is None:
        return provenance.notes
    rounded = f"Probabilities were rounded to {provenance.confidence_decimals} decimals before they became logits."
    return (*provenance.notes, rounded)
