"""The journal of a collection: `collection.jsonl` in the trace's folder, one line a fact.

The first line says what is being collected, one line what the models turned out to be, then one line a
finished batch, written before its part file appears. So whatever moment a collection dies at, every part
file has its line, and `--resume` repeats at most the batches in hand.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dspark_calib.collection.target_fit import TargetFit
from dspark_calib.errors import CollectionError
from dspark_calib.trace.provenance import Checkpoint
from dspark_calib.trace.store import JOURNAL_FILE

Recipe = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """What the models turned out to be when they were loaded.

    Attributes:
        gamma: Drafts in a block.
        drafter: Name and content hash.
    """

    gamma: int
    drafter: Checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchEntry:
    """A finished batch.

    Attributes:
        batch: Its number.
        prompts: Prompts in it.
        rounds: Rounds in its part file.
        cuts: Times a piece of it was halved for want of device memory.
        fits: How well each response fits the target; empty where the target wrote them here.
    """

    batch: int
    prompts: int
    rounds: int
    cuts: int
    fits: tuple[TargetFit, ...]


class Journal:
    """The journal of one trace folder.

    Args:
        folder: Of the trace; made when the journal begins.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL_FILE
        self.recipe: Recipe | None = None
        self.models: Models | None = None
        self.batches: dict[int, BatchEntry] = {}
        for line in self._lines():
            self._take(line)

    def begin(self, recipe: Recipe) -> None:
        """Start anew in an empty folder: say what is being collected."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.recipe, self.models, self.batches = recipe, None, {}
        self._append({"recipe": recipe})

    def note_models(self, models: Models) -> None:
        """Say what the models are; every worker of every run must find the same.

        Raises:
            CollectionError: If the drafter is another than when the collection began.
        """
        if self.models is None:
            self.models = models
            self._append({"models": asdict(models)})
        elif self.models != models:
            raise CollectionError(
                f"{self._path}: the collection began with drafter {_describe(self.models)}, now it is "
                f"{_describe(models)}; bring the first one back, or start anew with --overwrite"
            )

    def note_batch(self, entry: BatchEntry) -> None:
        """Say that a batch is finished, before its part file is written."""
        self.batches[entry.batch] = entry
        self._append({"batch": asdict(entry)})

    def _append(self, line: object) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _lines(self) -> list[dict[str, Any]]:
        """Return the whole lines; one cut short by a kill is dropped from the file, so that none is added to it."""
        if not self._path.is_file():
            return []
        text = self._path.read_text(encoding="utf-8", errors="replace")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self._path.write_text(whole, encoding="utf-8")
        try:
            return [json.loads(line) for line in whole.splitlines() if line]
        except json.JSONDecodeError as error:
            raise CollectionError(f"{self._path}: damaged ({error}); start anew with --overwrite") from error

    def _take(self, line: dict[str, Any]) -> None:
        if "recipe" in line:
            self.recipe = line["recipe"]
        elif "models" in line:
            models = line["models"]
            self.models = Models(gamma=models["gamma"], drafter=Checkpoint(**models["drafter"]))
        elif "batch" in line:
            entry = line["batch"]
            fits = tuple(TargetFit(**fit) for fit in entry["fits"])
            self.batches[entry["batch"]] = BatchEntry(**(entry | {"fits": fits}))


def _describe(models: Models) -> str:
    return f"{models.drafter.name} (sha256 {str(models.drafter.content_hash)[:12]}…, γ = {models.gamma})"
