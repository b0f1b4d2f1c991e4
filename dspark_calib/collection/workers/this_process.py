"""One worker, in this process."""

from collections.abc import Sequence
from functools import partial

from dspark_calib.collection.batches import Batch
from dspark_calib.collection.job import CollectionJob
from dspark_calib.collection.worker import BatchCollector
from dspark_calib.collection.workers.reports import BatchShare, Listener, ModelsReady


def run_here(job: CollectionJob, batches: Sequence[Batch], listener: Listener) -> None:
    """Collect all batches, one after another."""
    collector = BatchCollector(job)
    listener(ModelsReady(gamma=collector.gamma, drafter=collector.drafter_identity))
    for batch in batches:
        listener(collector.collect(batch, partial(_tick, listener, batch.index)))


def _tick(listener: Listener, index: int, share: float) -> None:
    listener(BatchShare(index=index, share=share))
