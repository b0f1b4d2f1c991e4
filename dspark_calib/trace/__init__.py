"""The trace: rounds with their provenance, on disk and in memory.

`rounds` holds the columns, `columns` their Arrow form, `provenance` the content of trace.json, `store`
reads and writes folders, `clusters` numbers prompts and assigns folds, `combine` joins traces, `loop` finds
the rounds of a decoding loop, `synthetic` draws rounds with known temperatures, `readers` import foreign formats.
"""

from dspark_calib.trace.clusters import PromptClusters, assign_folds, stable_hash
from dspark_calib.trace.combine import combine_traces
from dspark_calib.trace.labels import Labels, concat_labels
from dspark_calib.trace.loop import loop_trace, visited_rows
from dspark_calib.trace.provenance import Checkpoint, Provenance
from dspark_calib.trace.rounds import Rounds, check_rounds, concat_rounds
from dspark_calib.trace.store import Trace, TraceWriter, open_trace, write_trace

__all__ = [
    "Checkpoint",
    "Labels",
    "PromptClusters",
    "Provenance",
    "Rounds",
    "Trace",
    "TraceWriter",
    "assign_folds",
    "check_rounds",
    "combine_traces",
    "concat_labels",
    "concat_rounds",
    "loop_trace",
    "open_trace",
    "stable_hash",
    "visited_rows",
    "write_trace",
]
