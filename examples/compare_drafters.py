"""DSpark, DFlash and an n-gram drafter for one target, on one axis.

    python examples/compare_drafters.py [FOLDER]

The demo has one trained drafter. Its DFlash counterpart is the same network without the Markov head and the confidence
head: what DSpark's sequential head is worth on top of a block that is drafted at once. The n-gram drafter copies from
the text so far and needs no model. A drafter without a head is judged by a free proxy, the draft's own probability.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from dspark_calib.collection.collect import collect
from dspark_calib.collection.prompts import name_prompt_files
from dspark_calib.summary.build import compute_report
from dspark_calib.trace import Trace
from dspark_calib_reports.files import Formats, write_report

DEMO = Path(__file__).parent / "demo"
GAMMA = 7


def strip_heads(dspark: Path, dflash: Path) -> Path:
    """Write a DSpark checkpoint without its Markov and confidence heads: a DFlash checkpoint."""
    from safetensors.torch import load_file, save_file

    config = json.loads((dspark / "config.json").read_text())
    config |= {"markov_rank": 0, "enable_confidence_head": False}
    del config["markov_head_type"], config["confidence_head_with_markov"]
    weights = load_file(dspark / "model.safetensors")
    dflash.mkdir(parents=True)
    (dflash / "config.json").write_text(json.dumps(config, indent=2))
    kept = {name: w for name, w in weights.items() if not name.startswith(("markov_head.", "confidence_head."))}
    save_file(kept, dflash / "model.safetensors")
    return dflash


def collect_each(folder: Path, *, prompts: int, max_new_tokens: int) -> dict[str, Trace]:
    """One trace a drafter, over the same prompts and the same responses of the target."""
    dflash = strip_heads(DEMO / "drafter", folder / "dflash-checkpoint")
    drafters = {
        "dspark": (str(DEMO / "drafter"), "head"),
        "dflash": (str(dflash), "draft-prob"),
        "ngram": (f"ngram,gamma={GAMMA}", "draft-prob"),
    }
    traces = {}
    for name, (drafter, confidence) in drafters.items():
        collected = collect(
            str(DEMO / ".cache" / "target"),
            drafter,
            name_prompt_files([str(DEMO / "prompts" / "code.jsonl")]),
            folder / name,
            limit=prompts,
            max_new_tokens=max_new_tokens,
            confidence=confidence,
            seed=0,  # the same seed: the target writes the same responses for each drafter
        )
        traces[name] = collected.trace
    return traces


def compare(folder: Path, *, prompts: int = 8, max_new_tokens: int = 48) -> None:
    """Print accepted lengths and conditional acceptance, and write one report with all drafters in it."""
    first, *others = collect_each(folder, prompts=prompts, max_new_tokens=max_new_tokens).values()
    report = compute_report(first, beside=others)
    for drafter in report.drafters:
        shown = (estimate.value for estimate in drafter.acceptance.conditional)
        rates = " ".join(" –  " if value is None else f"{value:.2f}" for value in shown)
        print(f"{drafter.name:<40} τ = {drafter.acceptance.accepted_length.value:.2f}   conditional acceptance {rates}")
    write_report(report, folder / "report", Formats(html=True))


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        compare(Path(sys.argv[1] if len(sys.argv) > 1 else scratch))
