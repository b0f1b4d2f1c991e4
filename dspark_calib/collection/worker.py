"""One worker: loads target and drafter once, then turns batches into rounds."""

from collections.abc import Iterator
from dataclasses import dataclass

from dspark_calib.collection.batches import Batch
from dspark_calib.collection.job import CollectionJob, Tick
from dspark_calib.collection.scoring import check_confidence_source, score_responses
from dspark_calib.collection.target import find_target, load_target, load_tokenizer
from dspark_calib.collection.target_fit import TargetFit, measure_target_fit
from dspark_calib.collection.target_states import TargetForward
from dspark_calib.drafters.loading import load_drafter
from dspark_calib.drafters.target_parts import target_parts
from dspark_calib.errors import CollectionError
from dspark_calib.trace.rounds import Rounds, concat_rounds

_WRITING_SHARE = 0.6
"""Share of a batch's time that writing its responses takes, for the progress bar only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What came of a batch.

    Attributes:
        index: Number of the batch.
        prompts: Prompts in it.
        rounds: Its rounds, in trace order.
        fits: How well each response fits the target, where the target here did not write them; else empty.
        cuts: Times a piece of it was halved because the device ran out of memory.
    """

    index: int
    prompts: int
    rounds: Rounds
    fits: tuple[TargetFit, ...] = ()
    cuts: int = 0


class BatchCollector:
    """Target and drafter on one device.

    Args:
        job: What to load and how to judge.
        device: Overrides the job's device (a worker among several gets its own).
    """

    def __init__(self, job: CollectionJob, device: str | None = None) -> None:
        import torch

        torch.set_num_threads(job.threads)
        self._job = job
        files = find_target(job.target, trust_remote_code=job.trust_remote_code)
        self._model = load_target(files, device or job.device, job.dtype)
        self._drafter, self.drafter_identity = load_drafter(
            job.drafter,
            target_parts(self._model, job.target),
            target_tokenizer=load_tokenizer(files),
            trust_remote_code=job.trust_remote_code,
        )
        check_confidence_source(self._drafter, job.confidence)
        self._forward = TargetForward(self._model, self._drafter.target_layer_ids)

    @property
    def gamma(self) -> int:
        """Drafts in a block."""
        return self._drafter.gamma

    def collect(self, batch: Batch, tick: Tick = lambda _share: None) -> BatchResult:
        """Turn a batch into rounds; where the device's memory runs out, in halves.

        Raises:
            CollectionError: If not even one prompt fits into the device's memory.
        """
        pieces = list(self._collect_pieces(batch, tick))
        return BatchResult(
            index=batch.index,
            prompts=len(batch.prompts),
            rounds=concat_rounds([rounds for rounds, _ in pieces]),
            fits=tuple(fit for _, fits in pieces for fit in fits),
            cuts=len(pieces) - 1,
        )

    def _collect_pieces(self, batch: Batch, tick: Tick) -> Iterator[tuple[Rounds, tuple[TargetFit, ...]]]:
        waiting = [batch]
        while waiting:
            piece = waiting.pop()
            result = self._try(piece, tick)
            if result is not None:
                yield result
            elif len(piece.prompts) == 1:
                raise CollectionError(
                    f"the device has no memory for prompt {piece.prompts[0].name} alone; lower --max-new-tokens or "
                    "--batch-tokens, or use a larger device"
                )
            else:
                waiting += reversed(piece.halves())

    def _try(self, piece: Batch, tick: Tick) -> tuple[Rounds, tuple[TargetFit, ...]] | None:
        """Return what came of a piece, None where the device's memory ran out."""
        try:
            return self._collect_piece(piece, tick)
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
        # Only here, where the exception has let go of the tensors it held, can their memory be given back.
        _release_memory()
        return None

    def _collect_piece(self, piece: Batch, tick: Tick) -> tuple[Rounds, tuple[TargetFit, ...]]:
        job = self._job
        written_here = job.source is not None and job.source.is_the_target
        if piece.responses is not None:
            sequences = list(piece.responses)
        elif job.source is not None:
            sequences = job.source.respond(self._model, piece.prompts, lambda share: tick(_WRITING_SHARE * share))
        else:
            raise ValueError("a batch without responses needs a job with a source of them")
        fits: tuple[TargetFit, ...] = ()
        if piece.responses is not None or not written_here:
            fits = measure_target_fit(sequences, self._forward, job.temperature, job.batch_tokens)
        rounds = score_responses(
            sequences,
            self._forward,
            self._drafter,
            temperature=job.temperature,
            seed=job.seed,
            anchors=job.anchors,
            replicates=job.replicates,
            confidence=job.confidence,
            batch_tokens=job.batch_tokens,
        )
        tick(1.0)
        return rounds, fits


def _out_of_memory(error: Exception) -> bool:
    """Whether torch, or the CPU allocator behind it, ran out of memory."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return "can't allocate memory" in str(error) or "out of memory" in str(error).lower()


def _release_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
