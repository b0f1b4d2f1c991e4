"""Ten million rounds make a page within a minute of two cores, and a small one."""

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dspark_calib.trace import Rounds, write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

PROMPTS, ROUNDS_PER_PROMPT, PROMPTS_A_PART = 20_000, 500, 1_000


def parts() -> Iterator[Rounds]:
    """Ten million overconfident rounds, half a million at a time."""
    for first in range(0, PROMPTS, PROMPTS_A_PART):
        yield synthetic_rounds(
            np.random.default_rng(first),
            prompts=PROMPTS_A_PART,
            rounds_per_prompt=ROUNDS_PER_PROMPT,
            temperatures=[1.5] * 7,
            prompt_effect_sd=0.3,
            first_prompt=first,
        )


@pytest.mark.slow
def test_ten_million_rounds_make_a_page(tmp_path: Path) -> None:
    """At most 120 CPU seconds (60 s on two cores), 2 GB and 7 MB, whatever else the machine does."""
    write_trace(tmp_path / "trace", synthetic_provenance(7), parts())
    command = [sys.executable, "-m", "dspark_calib_cli", "report", "--html", "--quiet"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=tmp_path, check=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime <= 120
    assert used.ru_maxrss <= 2_000_000  # kilobytes
    assert (tmp_path / "report" / "report.html").stat().st_size <= 7_000_000
