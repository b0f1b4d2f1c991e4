"""The whole path in Python: collect, fit, report, gate, export.

    python examples/whole_path.py [FOLDER]

It uses the demo pair (`make demo` fetches the target) on a few prompts, so that it takes a minute on two cores. With so
few rounds the gate stays undecided, and the report says so.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dspark_calib.calibration import evaluate, fit_calibration, write_calibration
from dspark_calib.collection.collect import collect
from dspark_calib.collection.prompts import name_prompt_files
from dspark_calib.decision.conditions import Conditions
from dspark_calib.decision.gate import compute_gate
from dspark_calib.engines import render_export
from dspark_calib.engines.calibrated import table_of
from dspark_calib.summary.build import NamedCalibration, compute_report
from dspark_calib_reports.files import Formats, write_report

DEMO = Path(__file__).parent / "demo"
DOMAINS = ("math", "code", "chat")


def run(folder: Path, *, prompts_per_domain: int = 8, max_new_tokens: int = 48) -> str:
    """Do everything in `folder` and return the line for DeepInfer's environment."""
    files = [f"{name}={DEMO}/prompts/{name}.jsonl" for name in DOMAINS]
    collected = collect(
        str(DEMO / ".cache" / "target"),
        str(DEMO / "drafter"),
        name_prompt_files(files, [f"{name}={name}" for name in DOMAINS]),
        folder / "trace",
        limit=prompts_per_domain,
        max_new_tokens=max_new_tokens,
    )
    trace = collected.trace
    rounds = trace.read()
    kept = rounds.accepted.mean()
    print(f"{trace.num_rounds} rounds of {trace.provenance.prompts} prompts; {kept:.2f} drafts kept a round")

    calibration = fit_calibration(trace)  # on all prompts; its "after" numbers are out of fold
    write_calibration(folder / "calibration.json", calibration)
    print("temperatures:", *(f"{t:.2f}" for t in calibration.temperatures))

    report = compute_report(trace, calibration=NamedCalibration(file="calibration.json", calibration=calibration))
    write_report(report, folder / "report", Formats(html=True, json=True))

    gate = compute_gate(evaluate(trace, calibration), Conditions(max_ece=0.05))
    print(f"gate: {gate.outcome.value}, exit code {gate.exit_code}")
    return render_export(table_of(calibration), "deepinfer").text


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        print(run(Path(sys.argv[1] if len(sys.argv) > 1 else scratch)))
