"""Write a synthetic trace with known temperatures, up to 10⁸ rounds, part by part.

Example: python benchmarks/synthetic_trace.py --out /somewhere/trace --rounds 10000000 --prompts 20000
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dspark_calib.trace import Rounds, write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

PART_ROUNDS = 500_000


def parts(rounds: int, prompts: int, gamma: int, temperature: float, seed: int) -> Iterator[Rounds]:
    """Yield the trace in parts of about half a million rounds; prompts do not straddle parts."""
    each = max(rounds // prompts, 1)
    step = max(PART_ROUNDS // each, 1)
    rng = np.random.default_rng(seed)
    for first in range(0, prompts, step):
        yield synthetic_rounds(
            rng,
            prompts=min(step, prompts - first),
            rounds_per_prompt=each,
            temperatures=[temperature] * gamma,
            prompt_effect_sd=0.3,
            first_prompt=first,
        )


def main() -> None:
    """Parse, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=10_000_000)
    parser.add_argument("--prompts", type=int, default=20_000)
    parser.add_argument("--gamma", type=int, default=7)
    parser.add_argument("--temperature", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    batches = parts(args.rounds, args.prompts, args.gamma, args.temperature, args.seed)
    trace = write_trace(args.out, synthetic_provenance(args.gamma), batches, overwrite=True)
    print(f"{trace.num_rounds} rounds from {trace.provenance.prompts} prompts in {args.out}")


if __name__ == "__main__":
    main()
