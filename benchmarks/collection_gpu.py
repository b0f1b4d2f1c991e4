"""Loop rounds per second on a GPU, generation included, against decoding one block at a time.

    python benchmarks/collection_gpu.py --target NAME|FOLDER|GGUF --drafter NAME|FOLDER --prompts FILE [FILE …]

One run does both on the same device: the project's own decoding loop on a few prompts, then parallel
collection of `--sequences` responses of up to `--new-tokens` tokens (prompts are repeated under new ids,
so their responses differ). Prints a table on stderr and one JSON object on stdout. `--profile` adds where
the device's time goes, by kernel.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch

from dspark_calib.collection.chat_template import Prompt, tokenize_prompts
from dspark_calib.collection.decoding_loop import decode
from dspark_calib.collection.prompts import name_prompt_files, read_prompts
from dspark_calib.collection.responses.generation import Sampling, generate_responses
from dspark_calib.collection.scoring import score_responses
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target import describe_target, find_target, load_target
from dspark_calib.collection.target_states import TargetForward
from dspark_calib.drafters.drafter import Drafter
from dspark_calib.drafters.loading import load_drafter
from dspark_calib.drafters.target_parts import target_parts
from dspark_calib.trace.rounds import Rounds

T = TypeVar("T")

DEEPSPEC_ROUNDS_PER_SECOND = 12.0
"""DeepSpec's evaluator, batch 1, bf16, on one H200 with SmolLM2-135M and a two-layer drafter."""


def main() -> None:
    """Run the benchmark."""
    options = parse_options()
    files = find_target(options.target)
    target = describe_target(files)
    model = load_target(files, options.device, options.dtype)
    drafter, _ = load_drafter(options.drafter, target_parts(model, options.target), target_tokenizer=target.tokenizer)
    forward = TargetForward(model, drafter.target_layer_ids)
    texts = [text for file in name_prompt_files(options.prompts) for text in read_prompts(file)]
    prompts = repeat(tokenize_prompts(texts, target.tokenizer, options.target), options.sequences)
    sampling = Sampling(
        temperature=options.temperature,
        max_new_tokens=options.new_tokens,
        stop_token_ids=target.stop_token_ids,
        seed=0,
    )

    def write(some: list[Prompt]) -> list[ResponseSequence]:
        return generate_responses(model, some, sampling)

    def score(some: list[ResponseSequence]) -> Rounds:
        return score_responses(
            some, forward, drafter, temperature=options.temperature, seed=0, batch_tokens=options.batch_tokens
        )

    score(write(prompts[:8]))  # kernels are loaded and chosen here, not below
    loop = time_decoding(forward, drafter, prompts[: options.decoded], sampling)
    responses, writing = timed(lambda: write(prompts))
    rounds, scoring = timed(lambda: score(responses))
    result = summarise(options, loop, rounds, writing, scoring)
    if options.profile:
        result["kernels"] = {
            "writing": profile(lambda: write(prompts), writing),
            "scoring": profile(lambda: score(responses), scoring),
        }
    show(result)
    sys.stdout.write(json.dumps(result, indent=2, allow_nan=False) + "\n")


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--drafter", required=True)
    parser.add_argument("--prompts", nargs="+", required=True)
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--decoded", type=int, default=4, help="prompts for the decoding loop")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--batch-tokens", type=int, default=131_072)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--profile", action="store_true")
    return parser.parse_args()


def repeat(prompts: list[Prompt], count: int) -> list[Prompt]:
    """Return `count` prompts, the given ones over and over under new ids."""
    return [
        replace(prompts[i % len(prompts)], prompt_id=f"{prompts[i % len(prompts)].prompt_id}/{i // len(prompts)}")
        for i in range(count)
    ]


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what the work gives and the seconds it takes on the device."""
    synchronise()
    start = time.perf_counter()
    result = work()
    synchronise()
    return result, time.perf_counter() - start


def synchronise() -> None:
    """Wait for the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_decoding(
    forward: TargetForward, drafter: Drafter, prompts: list[Prompt], sampling: Sampling
) -> tuple[int, float]:
    """Return rounds and seconds of the decoding loop."""
    rng = np.random.default_rng(0)

    def work() -> int:
        return sum(
            len(
                decode(
                    prompt.token_ids,
                    forward,
                    drafter,
                    temperature=sampling.temperature,
                    max_new_tokens=sampling.max_new_tokens,
                    stop_tokens=sampling.stop_token_ids,
                    rng=rng,
                ).rounds
            )
            for prompt in prompts
        )

    return timed(work)


def summarise(
    options: argparse.Namespace, loop: tuple[int, float], rounds: Rounds, writing: float, scoring: float
) -> dict[str, Any]:
    """Return the figures of the run."""
    decoded, seconds = loop
    loop_speed = decoded / seconds
    speed = len(rounds) / (writing + scoring)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "device": device,
        "dtype": options.dtype,
        "sequences": options.sequences,
        "new_tokens": options.new_tokens,
        "loop_rounds": len(rounds),
        "response_tokens": int(rounds.response_length[first_rows(rounds)].sum()),
        "writing_seconds": writing,
        "scoring_seconds": scoring,
        "rounds_per_second": speed,
        "rounds_per_second_scoring_alone": len(rounds) / scoring,
        "decoding_loop_rounds_per_second": loop_speed,
        "against_decoding_loop": speed / loop_speed,
        "against_deepspec_evaluator": speed / DEEPSPEC_ROUNDS_PER_SECOND,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
    }


def first_rows(rounds: Rounds) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return where a response's first round stands."""
    return np.asarray(rounds.anchor == rounds.prompt_length)


def profile(work: Callable[[], object], seconds: float) -> list[dict[str, Any]]:
    """Return the dozen kernels that take most of the device's time, and the time the device was idle."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as recorded:
        timed(work)
    events = [e for e in recorded.key_averages() if e.self_device_time_total > 0 and e.device_type.name == "CUDA"]
    events.sort(key=lambda e: -e.self_device_time_total)
    busy = sum(e.self_device_time_total for e in events) / 1e6
    top = [{"kernel": e.key[:90], "seconds": e.self_device_time_total / 1e6, "calls": e.count} for e in events[:12]]
    return [{"kernel": "(device idle: launches and the host)", "seconds": max(0.0, seconds - busy), "calls": 0}, *top]


def show(result: dict[str, Any]) -> None:
    """Print the table."""
    for name, value in result.items():
        if name != "kernels":
            sys.stderr.write(f"{name:>34}  {value:,.1f}\n" if isinstance(value, float) else f"{name:>34}  {value}\n")
    for phase, kernels in result.get("kernels", {}).items():
        sys.stderr.write(f"\n{phase}\n")
        for row in kernels:
            sys.stderr.write(f"{row['seconds']:10.3f} s {row['calls']:8d} × {row['kernel']}\n")


if __name__ == "__main__":
    main()
