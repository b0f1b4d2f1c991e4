"""Parallel collection against the decoding loop, and memory against sequence length; the demo pair by default.

    python benchmarks/collection_speed.py [--prompts N] [--new-tokens N] [--temperature T] [--threads N]
    python benchmarks/collection_speed.py --memory

Speed: the decoding loop writes responses one block at a time, then parallel scoring judges the same
responses; both count loop rounds. The share of the loop's time inside model forwards says whether it is a
fair opponent, and the vocabulary projection alone (the rows parallel scoring cannot do without) says how
much faster it could get. On a machine that is busy with other things, trust the CPU seconds. Memory: the
peak of one scoring call above what the loaded models take, each length in a process of its own. A table
goes to stderr, one JSON object to stdout.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dspark_calib.collection.chat_template import tokenize_prompts
from dspark_calib.collection.decoding_loop import Decoded, decode
from dspark_calib.collection.law import is_greedy
from dspark_calib.collection.prompts import name_prompt_files, read_prompts
from dspark_calib.collection.scoring import score_responses
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target import describe_target, find_target, load_target
from dspark_calib.collection.target_states import TargetForward, TargetStates
from dspark_calib.drafters.drafter import DraftBlock, DraftContext, Drafter, DraftStep
from dspark_calib.drafters.loading import load_drafter
from dspark_calib.drafters.target_parts import target_parts

DEMO = Path(__file__).resolve().parent.parent / "examples" / "demo"
LENGTHS = (512, 2048, 8192)


@dataclass(slots=True)
class Clock:
    """Seconds spent inside what it times."""

    seconds: float = 0.0

    def __enter__(self) -> None:
        self.seconds -= time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter()


@dataclass(slots=True)
class TimedBlock:
    """A block whose steps are timed."""

    block: DraftBlock
    clock: Clock

    def step(self, slot: int, previous_tokens: Tensor) -> DraftStep:
        """See `DraftBlock.step`."""
        with self.clock:
            return self.block.step(slot, previous_tokens)


@dataclass(slots=True)
class TimedContext:
    """A context whose work is timed."""

    context: DraftContext
    clock: Clock

    def draft(self, anchors: Tensor) -> TimedBlock:
        """See `DraftContext.draft`."""
        with self.clock:
            return TimedBlock(self.context.draft(anchors), self.clock)

    def append(self, tokens: Tensor, features: Tensor) -> None:
        """See `DraftContext.append`."""
        with self.clock:
            self.context.append(tokens, features)

    def take(self, rows: Tensor) -> "TimedContext":
        """See `DraftContext.take`."""
        return TimedContext(self.context.take(rows), self.clock)


@dataclass(slots=True)
class TimedDrafter:
    """A drafter whose work is timed."""

    drafter: Drafter
    gamma: int
    vocab_size: int
    target_layer_ids: tuple[int, ...]
    has_confidence_head: bool
    clock: Clock = field(default_factory=Clock)

    def encode(self, tokens: Tensor, features: Tensor) -> TimedContext:
        """See `Drafter.encode`."""
        with self.clock:
            return TimedContext(self.drafter.encode(tokens, features), self.clock)


class TimedTarget(TargetForward):
    """A target whose forwards are timed."""

    clock = Clock()

    def run(self, tokens: Tensor, cache: Any = None) -> TargetStates:
        """See `TargetForward.run`."""
        with self.clock:
            return super().run(tokens, cache)

    def logits(self, final: Tensor) -> Tensor:
        """See `TargetForward.logits`."""
        with self.clock:
            return super().logits(final)


def main() -> None:
    """Run the benchmark asked for."""
    options = parse_options()
    torch.set_num_threads(options.threads)
    if options.length:
        print(json.dumps(measure_memory(options)))
    elif options.memory:
        report_memory(options)
    else:
        report_speed(options)


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default=str(DEMO / ".cache" / "target"))
    parser.add_argument("--drafter", default=str(DEMO / "drafter"))
    parser.add_argument("--prompt-files", nargs="+", default=[str(p) for p in sorted(DEMO.glob("prompts/*.jsonl"))])
    parser.add_argument("--prompts", type=int, default=24, help="prompts, spread over the files")
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch-tokens", type=int, default=16384)
    parser.add_argument("--memory", action="store_true", help="measure memory instead of speed")
    parser.add_argument("--length", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Rounds, and the seconds they took: on the clock, and of all CPUs together."""

    rounds: int
    seconds: float
    cpu_seconds: float

    def to_dict(self) -> dict[str, float]:
        """Counts and the rate."""
        return {
            "rounds": self.rounds,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "rounds_per_second": self.rounds / self.seconds,
        }


def report_speed(options: argparse.Namespace) -> None:
    """Time both ways over the same responses."""
    files = find_target(options.target)
    described = describe_target(files)
    model = load_target(files, "cpu", "float32")
    drafter, _ = load_drafter(options.drafter, target_parts(model, options.target))
    texts = [text for file in name_prompt_files(options.prompt_files) for text in read_prompts(file)]
    texts = texts[:: max(1, len(texts) // options.prompts)][: options.prompts]
    prompts = [list(p.token_ids) for p in tokenize_prompts(texts, described.tokenizer, options.target)]
    decoded, loop, inside = time_loop(prompts, model, drafter, described.stop_token_ids, options)
    target = TargetForward(model, drafter.target_layer_ids)
    parallel, rows = time_scoring(decoded, target, drafter, options)
    floor = time_projection(rows, drafter.vocab_size, model.config.hidden_size)
    result = {
        "prompts": len(prompts),
        "temperature": options.temperature,
        "threads": options.threads,
        "response_tokens": sum(len(d.token_ids) - d.prompt_length for d in decoded),
        "loop": loop.to_dict() | {"share_in_model_forwards": inside},
        "parallel": parallel.to_dict() | {"projection_cpu_seconds": floor},
        "share_of_projection": floor / parallel.cpu_seconds,
        "speedup": (parallel.rounds / parallel.seconds) / (loop.rounds / loop.seconds),
        "speedup_in_cpu_seconds": (parallel.rounds / parallel.cpu_seconds) / (loop.rounds / loop.cpu_seconds),
    }
    show("speed", ["rounds", "seconds", "rounds/s", "CPU ms/round"], [
        [name, t.rounds, f"{t.seconds:.1f}", f"{t.rounds / t.seconds:.1f}", f"{t.cpu_seconds / t.rounds * 1e3:.1f}"]
        for name, t in [("decoding loop", loop), ("parallel", parallel)]
    ])  # fmt: skip
    print(
        f"speedup {result['speedup']:.2f} (in CPU seconds {result['speedup_in_cpu_seconds']:.2f}); the loop spends "
        f"{inside:.1%} in model forwards; the projection alone is {result['share_of_projection']:.1%} of scoring",
        file=sys.stderr,
    )
    print(json.dumps(result, allow_nan=False))


def time_loop(
    prompts: list[list[int]], model: Any, drafter: Drafter, stop: tuple[int, ...], options: argparse.Namespace
) -> tuple[list[Decoded], Timing, float]:
    """Decode every prompt; return the responses, the time, and the share of it inside model forwards."""
    target = TimedTarget(model, drafter.target_layer_ids)
    timed = TimedDrafter(
        drafter, drafter.gamma, drafter.vocab_size, tuple(drafter.target_layer_ids), drafter.has_confidence_head
    )
    target.run(torch.tensor([prompts[0]]))  # first calls pay for setting up
    target.clock.seconds = 0.0
    rng = np.random.default_rng(0)
    started, cpu = time.perf_counter(), time.process_time()
    decoded = [
        decode(p, target, timed, temperature=options.temperature, max_new_tokens=options.new_tokens,
               stop_tokens=stop, rng=rng)
        for p in prompts
    ]  # fmt: skip
    seconds = time.perf_counter() - started
    inside = (target.clock.seconds + timed.clock.seconds) / seconds
    rounds = sum(len(d.rounds) for d in decoded)
    return decoded, Timing(rounds=rounds, seconds=seconds, cpu_seconds=time.process_time() - cpu), inside


def time_scoring(
    decoded: list[Decoded], target: TargetForward, drafter: Drafter, options: argparse.Namespace
) -> tuple[Timing, int]:
    """Score the same responses; return the time and the logits rows no way of scoring can do without."""
    sequences = [
        ResponseSequence(dataset="prompts", domain=None, prompt_id=str(i), token_ids=d.token_ids,
                         prompt_length=d.prompt_length, ending=d.ending)
        for i, d in enumerate(decoded)
    ]  # fmt: skip
    target.run(torch.tensor([sequences[0].token_ids[:8]]))
    started, cpu = time.perf_counter(), time.process_time()
    rounds = score_responses(
        sequences, target, drafter, temperature=options.temperature, seed=0, batch_tokens=options.batch_tokens
    )
    timing = Timing(
        rounds=len(rounds), seconds=time.perf_counter() - started, cpu_seconds=time.process_time() - cpu
    )  # fmt: skip
    # Every draft needs its logits; a sampled round also the target's, up to its first rejection.
    judged = 0 if is_greedy(options.temperature) else int(np.minimum(rounds.accepted + 1, drafter.gamma).sum())
    return timing, len(rounds) * drafter.gamma + judged


@torch.inference_mode()
def time_projection(rows: int, vocab: int, hidden: int) -> float:
    """CPU seconds of the vocabulary projection alone over so many rows, 448 at a time, into memory at hand."""
    states, matrix, out = torch.randn(448, hidden), torch.randn(hidden, vocab), torch.empty(448, vocab)
    torch.mm(states, matrix, out=out)
    started = time.process_time()
    for _ in range(4):
        torch.mm(states, matrix, out=out)
    return (time.process_time() - started) / (4 * 448) * rows


def report_memory(options: argparse.Namespace) -> None:
    """Measure each length and policy in a process of its own."""
    results = []
    for length in LENGTHS:
        command = [sys.executable, __file__, "--length", str(length), "--target", options.target, "--drafter",
                   options.drafter, "--threads", str(options.threads), "--temperature", str(options.temperature),
                   "--batch-tokens", str(options.batch_tokens)]  # fmt: skip
        results.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    rows = [[r["length"], r["rounds"], f"{r['peak_mib']:.0f}", f"{r['seconds']:.0f}"] for r in results]
    show("sequence length", ["anchors", "peak MiB", "seconds"], rows)
    print(json.dumps({"batch_tokens": options.batch_tokens, "memory": results}, allow_nan=False))


def measure_memory(options: argparse.Namespace) -> dict[str, float]:
    """Score a full batch of sequences of this length, their last 63 anchors, and read the peak."""
    files = find_target(options.target)
    model = load_target(files, "cpu", "float32")
    drafter, _ = load_drafter(options.drafter, target_parts(model, options.target))
    target = TargetForward(model, drafter.target_layer_ids)
    count = max(1, options.batch_tokens // options.length)
    tokens = np.random.default_rng(0).integers(3, 40000, (count, options.length))
    sequences = [
        ResponseSequence(dataset="d", domain=None, prompt_id=str(i), token_ids=row.tolist(),
                         prompt_length=options.length - 64, ending="length")
        for i, row in enumerate(tokens)
    ]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    rounds = score_responses(
        sequences, target, drafter, temperature=options.temperature, seed=0, anchors="all",
        batch_tokens=options.batch_tokens,
    )  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "length": options.length,
        "sequences": count,
        "rounds": len(rounds),
        "peak_mib": peak / 1024,
        "seconds": time.perf_counter() - started,
    }


def show(title: str, names: list[str], rows: list[list[Any]]) -> None:
    """Print a table to stderr."""
    for row in [[title, *names], *rows]:
        print("  ".join(f"{cell!s:>18}" for cell in row), file=sys.stderr)


if __name__ == "__main__":
    main()
