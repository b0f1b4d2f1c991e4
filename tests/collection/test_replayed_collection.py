"""A trace of every anchor holds the loop: replaying it gives what collecting the loop gives."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from disk_pair import save_drafter, save_target, write_prompts

from dspark_calib.collection.collect import collect
from dspark_calib.collection.prompts import PromptFile
from dspark_calib.scheduling.confidence_source import raw_confidences
from dspark_calib.scheduling.fixed import FixedLength
from dspark_calib.scheduling.responses import responses_of
from dspark_calib.scheduling.visits import visit_rounds
from dspark_calib.trace import Labels, Rounds, Trace, visited_rows


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random pair and prompts."""
    home = tmp_path_factory.mktemp("pair")
    save_target(home / "target")
    save_drafter(home / "drafter")
    write_prompts(home / "prompts.jsonl", 10)
    return home


def collected(home: Path, out: Path, temperature: float, **options: object) -> Trace:
    """One collection with a fixed seed."""
    prompts = [PromptFile(dataset="set", path=home / "prompts.jsonl", domain="chat")]
    names = (str(home / "target"), str(home / "drafter"))
    settings = {"max_new_tokens": 16, "device": "cpu", "seed": 4, "temperature": temperature} | options
    return collect(*names, prompts, out, **settings).trace  # type: ignore[arg-type] # mixed values


def assert_same_rounds(a: Rounds, b: Rounds) -> None:
    """Tokens, labels, anchors and outcomes are equal, real numbers to the rounding of float32.

    More anchors in one forward are larger matrix products, which may differ in the last digit.
    """
    for field in fields(Rounds):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if isinstance(left, Labels):
            assert left.decode() == right.decode(), field.name
        elif left.dtype == np.float32:
            np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5, err_msg=field.name)
        else:
            np.testing.assert_array_equal(left, right, err_msg=field.name)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_full_replay_is_the_loop_collection(home: Path, tmp_path: Path, temperature: float, concurrency: int) -> None:
    """Fixed γ on the `all` trace = its loop rounds = the rounds of a `loop` collection with the same seed."""
    every = collected(home, tmp_path / "all", temperature, anchors="all")
    loop = collected(home, tmp_path / "loop", temperature, anchors="loop").read()
    responses = responses_of(every)
    visits = visit_rounds(
        responses,
        raw_confidences(responses.rounds),
        FixedLength(),
        speeds=np.ones(concurrency * (1 + every.gamma) + 1),
        concurrency=concurrency,
        requests=responses.count,
        seed=0,
    )
    rounds = every.read()
    assert len(loop) > 10
    np.testing.assert_array_equal(visits.rows_of_first_pass(responses.count), visited_rows(rounds))
    assert_same_rounds(rounds.take(visits.rows_of_first_pass(responses.count)), loop)
