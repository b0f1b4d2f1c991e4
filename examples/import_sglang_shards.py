"""From SGLang's recorded shards to a table that SGLang loads, with an honest "after" number.

    python examples/import_sglang_shards.py shards/sts.0.pt shards/sts.1.pt

SGLang writes the shards with SGLANG_DSPARK_STS_COLLECT_PATH. They hold no prompt ids, so blocks of 100 rounds stand in
for prompts in every interval, which the notes say.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dspark_calib.calibration import fit_calibration
from dspark_calib.engines import render_export
from dspark_calib.engines.calibrated import table_of
from dspark_calib.trace import open_trace
from dspark_calib.trace.readers.importing import import_records


def calibrate_shards(shards: list[Path], folder: Path) -> str:
    """Import, fit and return the JSON that `--speculative-dspark-confidence-sts-path` takes."""
    imported = import_records("sglang-shards", shards, folder / "trace")
    print(f"{imported.account.kept} of {imported.account.read} rows kept, γ = {imported.gamma}")
    for note in imported.notes:
        print(f"note: {note}")
    calibration = fit_calibration(open_trace(imported.path))
    for k, temperature in enumerate(calibration.temperatures, start=1):
        print(f"position {k}: T = {temperature:.3f}")
    if calibration.ece_before and calibration.ece_after:
        means = [sum(ece) / len(ece) for ece in (calibration.ece_before, calibration.ece_after)]
        print(f"mean ECE {means[0]:.4f} → {means[1]:.4f}, held out")
    return render_export(table_of(calibration), "sglang").text


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        print(calibrate_shards([Path(argument) for argument in sys.argv[1:]], Path(scratch)))
