"""Where a trace comes from: the content of `trace.json`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from dspark_calib.errors import TraceFormatError

SCHEMA = "dspark-calib/trace/1"
LABEL_LAWS = ("sampled", "greedy")
ANCHOR_POLICIES = ("loop", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model by name and content hash (sha256 of its weights; a GGUF's is that of the file); None where unknown."""

    name: str | None = None
    content_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Everything about a trace that is not a round.

    Attributes:
        gamma: Drafts in a block.
        target: The verifying model.
        drafter: The proposing model.
        confidence_source: `head`, or the proxy that stands in: `draft-prob`, `margin`, `entropy`.
        label_law: `sampled` or `greedy`; None where an import does not say.
        temperature: Sampling temperature of the responses (0 = greedy), None where unknown.
        anchor_policy: `loop` or `all`; None where unknown.
        seed: Of the coupling and the generation, None for imports.
        source: The command that made the trace, such as `collect` or `import sglang-shards`.
        prompt_files: sha256 of each prompt file by dataset name.
        source_files: sha256 of each file an import read, by path as it was given.
        versions: Version of each library by name.
        calibration_applied: Temperatures the logits already carried when logged; must be None to be fitted.
        confidence_decimals: Decimals to which probabilities were rounded before they became logits, None where
            the logits are exact; `trace.readers.rounding` gives the interval of each.
        rounds: Rows of the trace.
        prompts: Distinct prompts, 0 where there are no ids.
        refused: Rows an import refused, counted by reason.
        findings: Counts of what the collection itself noticed, by name (`responses_not_from_target`, …).
        notes: Sentences for the reader of a report.
    """

    gamma: int
    target: Checkpoint = field(default_factory=Checkpoint)
    drafter: Checkpoint = field(default_factory=Checkpoint)
    confidence_source: str = "head"
    label_law: str | None = None
    temperature: float | None = None
    anchor_policy: str | None = None
    seed: int | None = None
    source: str = "collect"
    prompt_files: Mapping[str, str] = field(default_factory=dict)
    source_files: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    calibration_applied: tuple[float, ...] | None = None
    confidence_decimals: int | None = None
    rounds: int = 0
    prompts: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    findings: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def with_counts(self, rounds: int, prompts: int) -> "Provenance":
        """Return a copy with the final counts."""
        return replace(self, rounds=rounds, prompts=prompts)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of `trace.json`."""
        body = {"schema": SCHEMA, **asdict(self)}
        body["counts"] = {"rounds": body.pop("rounds"), "prompts": body.pop("prompts")}
        return body

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], where: str) -> "Provenance":
        """Read the JSON object of `trace.json`.

        Raises:
            TraceFormatError: If the schema is another, a field is missing or unknown, or a value is out of range.
        """
        body = dict(data)
        schema = body.pop("schema", None)
        if schema != SCHEMA:
            raise TraceFormatError(f"{where}, schema = {schema!r}: this version reads {SCHEMA!r}")
        body |= _counts(body.pop("counts", None), where)
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(body) - known)
        if unknown:
            raise TraceFormatError(f"{where}, {unknown[0]}: unknown field; the trace was written by another version")
        for name in ("target", "drafter"):
            body[name] = _checkpoint(body.get(name), f"{where}, {name}")
        for name in ("calibration_applied", "notes"):
            if body.get(name) is not None:
                body[name] = tuple(body[name])
        try:
            return _checked(cls(**body), where)
        except TypeError as error:
            raise TraceFormatError(f"{where}: {error}") from error


def _counts(counts: object, where: str) -> dict[str, int]:
    if not isinstance(counts, Mapping) or not all(isinstance(counts.get(k), int) for k in ("rounds", "prompts")):
        raise TraceFormatError(f"{where}, counts: expected whole numbers 'rounds' and 'prompts', found {counts!r}")
    return {"rounds": counts["rounds"], "prompts": counts["prompts"]}


def _checkpoint(value: object, where: str) -> Checkpoint:
    if not isinstance(value, Mapping) or set(value) - {"name", "content_hash"}:
        raise TraceFormatError(f"{where}: expected an object with 'name' and 'content_hash', found {value!r}")
    return Checkpoint(name=value.get("name"), content_hash=value.get("content_hash"))


def _checked(provenance: Provenance, where: str) -> Provenance:
    choices = {"label_law": LABEL_LAWS, "anchor_policy": ANCHOR_POLICIES}
    for name, allowed in choices.items():
        value = getattr(provenance, name)
        if value is not None and value not in allowed:
            raise TraceFormatError(f"{where}, {name} = {value!r}: expected one of {', '.join(allowed)}")
    if not isinstance(provenance.gamma, int) or provenance.gamma < 1:
        raise TraceFormatError(f"{where}, gamma = {provenance.gamma!r}: expected a whole number of at least 1")
    return provenance
