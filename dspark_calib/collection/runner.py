"""Running a collection: hand out batches, write parts, keep the journal, finish the trace."""

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from dspark_calib.collection.batches import Batch
from dspark_calib.collection.job import CollectionJob
from dspark_calib.collection.journal import BatchEntry, Journal, Models, Recipe
from dspark_calib.collection.law import is_greedy
from dspark_calib.collection.messages import Progress, Remark, Watcher, ignore
from dspark_calib.collection.plan import CollectionPlan, differing_fields
from dspark_calib.collection.target_fit import count_misfits
from dspark_calib.collection.worker import BatchResult
from dspark_calib.collection.workers.processes import run_in_processes
from dspark_calib.collection.workers.reports import BatchShare, Listener, ModelsReady, Report
from dspark_calib.collection.workers.this_process import run_here
from dspark_calib.errors import CollectionError, OutputExists
from dspark_calib.trace.provenance import Checkpoint, Provenance
from dspark_calib.trace.store import Trace, TraceWriter, open_trace, remove_trace, remove_unfinished_parts

_LIBRARIES = ("dspark-calib", "torch", "transformers", "numpy")
Workers = int | Literal["ray"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What `collect_trace` did.

    Attributes:
        trace: The finished trace.
        batches: Batches collected by this run; 0 where the trace was there already.
        resumed: Batches that an earlier run had finished.
    """

    trace: Trace
    batches: int
    resumed: int


def collect_trace(
    plan: CollectionPlan,
    job: CollectionJob,
    target: Checkpoint,
    recipe: Recipe,
    out: Path,
    *,
    workers: Workers = 1,
    resume: bool = False,
    overwrite: bool = False,
    watcher: Watcher = ignore,
) -> Collected:
    """Collect a trace; what is finished stays, whatever ends the run.

    Args:
        plan: Batches in trace order.
        job: Models and law.
        target: Name and content hash, for the provenance.
        recipe: Everything that decides what comes out, to tell whether an earlier collection was the same.
        out: Folder of the trace.
        workers: Processes, 1 for this one; `ray` for Ray actors.
        resume: Go on with an interrupted collection of the same recipe.
        overwrite: Replace what is there.
        watcher: Told of progress and remarks.

    Raises:
        OutputExists: If something else stands at `out`.
        CollectionError: If a worker dies, a disk fills or a device has no memory for one prompt.
    """
    journal = Journal(out)
    if not overwrite and (finished := _finished_already(out, journal, recipe)):
        watcher(Remark(text=f"{out} holds this collection already, finished; nothing to do"))
        return Collected(trace=finished, batches=0, resumed=len(plan.batches))
    goes_on = not overwrite and _may_go_on(out, journal, recipe, resume=resume)
    recorder = _Recorder(plan, journal, recipe, out, watcher, goes_on=goes_on)
    open_batches = [batch for batch in plan.batches if batch.index not in recorder.done]
    resumed = len(recorder.done)
    try:
        if open_batches:
            _run(job, open_batches, workers, recorder.hear)
    except BaseException:
        recorder.leave_nothing_empty()
        raise
    trace = _complete(out, _provenance(plan, job, target, journal), journal)
    return Collected(trace=trace, batches=len(open_batches), resumed=resumed)


class _Recorder:
    """Writes down what workers report; nothing is touched before the first of them has loaded its models.

    Args:
        plan: What is to be collected.
        journal: Of the folder.
        recipe: Of this collection.
        out: Folder of the trace.
        watcher: Told of progress and remarks.
        goes_on: Whether parts that are there are kept.
    """

    def __init__(
        self, plan: CollectionPlan, journal: Journal, recipe: Recipe, out: Path, watcher: Watcher, *, goes_on: bool
    ) -> None:
        self._plan, self._journal, self._recipe, self._out, self._watcher = plan, journal, recipe, out, watcher
        self._begun = goes_on
        if goes_on:
            remove_unfinished_parts(out)
        self.done = set(TraceWriter(out).finished_parts() & journal.batches.keys()) if goes_on else set()
        self._prompts = {batch.index: len(batch.prompts) for batch in plan.batches}
        self._shares: dict[int, float] = {}
        self._rounds = 0
        self._started = time.monotonic()
        self._tell()

    def hear(self, report: Report) -> None:
        """Take one report of a worker."""
        if isinstance(report, BatchShare):
            self._shares[report.index] = report.share
        else:
            with _readable_disk_failures(self._out):
                self._write_down(report)
        self._tell()

    def _write_down(self, report: ModelsReady | BatchResult) -> None:
        if isinstance(report, BatchResult):
            self._finish(report)
        else:
            self._begin()
            self._journal.note_models(Models(gamma=report.gamma, drafter=report.drafter))

    def _begin(self) -> None:
        if not self._begun:
            remove_trace(self._out)
            self._journal.begin(self._recipe)
            self._begun = True

    def leave_nothing_empty(self) -> None:
        """Remove a folder that holds a journal and no part: there is nothing in it to go on with."""
        if self._begun and not self.done:
            remove_trace(self._out)

    def _finish(self, result: BatchResult) -> None:
        entry = BatchEntry(
            batch=result.index, prompts=result.prompts, rounds=len(result.rounds), cuts=result.cuts, fits=result.fits
        )
        self._journal.note_batch(entry)
        TraceWriter(self._out).write_part(result.index, result.rounds)
        self._shares.pop(result.index, None)
        self.done.add(result.index)
        self._rounds += len(result.rounds)
        if result.cuts:
            pieces = result.cuts + 1
            text = f"batch {result.index}: the device ran out of memory, so it was collected in {pieces} pieces"
            self._watcher(Remark(text=text))

    def _tell(self) -> None:
        finished = sum(self._prompts[index] for index in self.done)
        in_hand = sum(self._prompts[index] * share for index, share in self._shares.items())
        self._watcher(
            Progress(
                batches_done=len(self.done),
                batches=len(self._plan.batches),
                prompts_done=finished + in_hand,
                prompts=self._plan.prompts,
                rounds=self._rounds,
                seconds=time.monotonic() - self._started,
            )
        )


def _finished_already(out: Path, journal: Journal, recipe: Recipe) -> Trace | None:
    """Return the finished trace at `out` if it is of this recipe, None if there is no finished trace.

    Raises:
        OutputExists: If it is of another.
    """
    if not (out / "trace.json").is_file():
        return None
    if journal.recipe is None:
        raise OutputExists(f"{out} holds another trace; name another output or pass --overwrite")
    if different := differing_fields(journal.recipe, recipe):
        raise OutputExists(
            f"{out} holds another collection ({'; '.join(different)}); name another output or pass --overwrite"
        )
    return open_trace(out)


def _may_go_on(out: Path, journal: Journal, recipe: Recipe, *, resume: bool) -> bool:
    """Return whether parts of this very collection are there to go on with.

    Raises:
        OutputExists: If something else is there, or going on was not asked for.
    """
    if out.exists() and not out.is_dir():
        raise OutputExists(f"{out} is a file; name another output folder")
    if journal.recipe is None:
        if out.is_dir() and any(out.iterdir()):
            raise OutputExists(f"{out} exists already; name another output or pass --overwrite")
        return False
    if not resume:
        raise OutputExists(
            f"{out} holds a collection that was interrupted; go on with --resume, or start anew with --overwrite"
        )
    if different := differing_fields(journal.recipe, recipe):
        raise OutputExists(
            f"{out} holds the beginning of another collection ({'; '.join(different)}); "
            "resume with the same options, or start anew with --overwrite"
        )
    return True


def _complete(out: Path, provenance: Provenance, journal: Journal) -> Trace:
    """Finish the trace, unless there is nothing in it."""
    if not any(entry.rounds for entry in journal.batches.values()):
        remove_trace(out)
        raise CollectionError(
            "no rounds: every response ends with its first token; check the target's chat template and stop tokens"
        )
    with _readable_disk_failures(out):
        return TraceWriter(out).complete(provenance)


@contextmanager
def _readable_disk_failures(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CollectionError(
            f"{out}: cannot be written ({error.strerror or error}); finished parts are kept: make room, then go on "
            "with --resume"
        ) from error


def _run(job: CollectionJob, batches: Sequence[Batch], workers: Workers, listener: Listener) -> None:
    if workers == "ray":
        from dspark_calib.collection.workers.ray_actors import run_on_ray

        run_on_ray(job, batches, listener)
    elif workers == 1:
        run_here(job, batches, listener)
    else:
        run_in_processes(job, batches, min(workers, len(batches)), listener)


def _provenance(plan: CollectionPlan, job: CollectionJob, target: Checkpoint, journal: Journal) -> Provenance:
    if journal.models is None:
        raise CollectionError("the journal does not say what the models were; start anew with --overwrite")
    fits = [fit for _, entry in sorted(journal.batches.items()) for fit in entry.fits]
    misfits = count_misfits(fits, job.temperature)
    return Provenance(
        gamma=journal.models.gamma,
        target=target,
        drafter=journal.models.drafter,
        confidence_source=job.confidence,
        label_law="greedy" if is_greedy(job.temperature) else "sampled",
        temperature=0.0 if is_greedy(job.temperature) else job.temperature,
        anchor_policy=job.anchors,
        seed=job.seed,
        prompt_files=dict(plan.prompt_files),
        versions=_versions(),
        findings={"responses_not_from_target": misfits} if misfits else {},
        notes=(*plan.notes, *_notes_on_batches(journal)),
    )


def _notes_on_batches(journal: Journal) -> list[str]:
    halved = [str(index) for index, entry in sorted(journal.batches.items()) if entry.cuts]
    if not halved:
        return []
    return [f"halved because the device ran out of memory: batch {', '.join(halved)}; only their law is promised"]


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            continue
    return versions
