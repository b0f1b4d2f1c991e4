"""A trace shared out by file gives the sums, the temperatures and the measures of the trace in one place."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspark_calib.calibration import Calibration, FitRows, evaluate, fit_calibration, fit_sts
from dspark_calib.errors import TraceFormatError
from dspark_calib.metrics.rows import judged_rows
from dspark_calib.metrics.rows.judged import JudgedTrace
from dspark_calib.metrics.rows.judged_rows import JudgedRows
from dspark_calib.metrics.rows.shards import Memory, Task
from dspark_calib.trace import Labels, Rounds, Trace, open_trace, write_trace
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds

GAMMA = 3


def drawn(seed: int, *, first: int = 0, ids: bool = True, cut: bool = False) -> Rounds:
    """900 rounds of 30 prompts of two domains."""
    rounds = synthetic_rounds(
        np.random.default_rng(seed),
        prompts=30,
        rounds_per_prompt=30,
        temperatures=[1.6, 1.2, 0.8],
        prompt_effect_sd=0.3,
        first_prompt=first,
    )
    domain = Labels(codes=(np.arange(900) // 450).astype(np.int32), names=("math", "chat"))
    rounds = replace(rounds, domain=domain)
    if not ids:
        rounds = replace(rounds, prompt_id=Labels(codes=np.full(900, -1, np.int32), names=()))
    if cut:
        sent = np.where(rounds.confidence_logits[:, 1] < 0, 1, GAMMA).astype(np.int16)
        rounds = replace(rounds, observed=sent, verified=sent, accepted=np.minimum(rounds.accepted, sent))
    return rounds


def on_disk(folder: Path, parts: Sequence[Rounds]) -> Trace:
    """Write a trace of one file for each part."""
    return write_trace(folder, synthetic_provenance(GAMMA), parts)


class Apart:
    """Shards whose tasks and results go through pickle, as they do between machines; results come back read-only."""

    def __init__(self, shares: Sequence[JudgedRows]) -> None:
        self._shares = [(pickle.loads(pickle.dumps(share)).at_hand(), Memory()) for share in shares]  # noqa: S301

    def map(self, task: Task[Any]) -> list[Any]:
        """Run the task on each share."""
        sent = pickle.dumps(task)
        return [
            pickle.loads(pickle.dumps(pickle.loads(sent)(rows, memory)))  # noqa: S301
            for rows, memory in self._shares
        ]


def apart(trace: Trace, by: Any = None, most: int = 3) -> JudgedTrace:
    """Return the trace judged, on shards."""
    judged = JudgedTrace(trace, by)
    return judged.on(Apart(judged.shares(most)))


def parts(kind: str) -> list[Rounds]:
    """Return five files: prompts that straddle files, no prompt ids, or cut rounds."""
    if kind == "straddling":
        return [drawn(s, first=20 * s) for s in range(5)]
    if kind == "no ids":
        return [drawn(s, ids=False).take(slice(0, 850)) for s in range(5)]
    return [drawn(s, first=30 * s, cut=True) for s in range(5)]


@pytest.mark.parametrize("kind", ["straddling", "no ids", "cut"])
@pytest.mark.parametrize("most", [1, 3, 9])
def test_fit_and_scores_agree(tmp_path: Path, kind: str, most: int) -> None:
    """Temperatures equal, sums to 1e-12, with any number of shares."""
    trace = on_disk(tmp_path / "trace", parts(kind))
    here, there = JudgedTrace(trace, "domain"), apart(trace, "domain", most)
    view: Any = "conditional" if kind == "cut" else "cumulative"
    ours, theirs = (fit_sts(FitRows(judged, view)) for judged in (here, there))
    assert theirs.temperatures == ours.temperatures
    for a, b in zip(ours.positions, theirs.positions, strict=True):
        assert (a.n, a.positives, a.interval) == (b.n, b.positives, b.interval)
        np.testing.assert_allclose(a.curve, b.curve, rtol=1e-12)
    scored = [evaluate(trace, by="domain", draws=40, judged=judged).groups for judged in (here, there)]
    for a, b in zip(*scored, strict=True):
        for one, other in zip(a.raw.cumulative, b.raw.cumulative, strict=True):
            assert one.n == other.n
            for name in ("ece", "bias", "brier", "log_loss", "auroc"):
                x, y = getattr(one, name), getattr(other, name)
                expected = [np.nan if v is None else v for v in (x.value, x.low, x.high)]
                found = [np.nan if v is None else v for v in (y.value, y.low, y.high)]
                np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_objectives_and_large_shares_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with rows that are read again on each pass, a sketched search, and every objective."""
    monkeypatch.setattr(judged_rows, "CACHE_BYTES", 0)
    monkeypatch.setattr("dspark_calib.calibration.fitting.search.EXHAUSTIVE_ROWS", 0)
    trace = on_disk(tmp_path / "trace", parts("straddling"))
    here, there = JudgedTrace(trace), apart(trace)
    for objective in ("ece", "brier", "nll"):
        ours, theirs = (
            fit_sts(FitRows(j, "conditional" if objective == "nll" else "cumulative"), objective=objective)  # type: ignore[arg-type]
            for j in (here, there)
        )
        assert theirs.temperatures == ours.temperatures
    sample = FitRows(there, "cumulative").sample()
    np.testing.assert_array_equal(sample.logits, FitRows(here, "cumulative").sample().logits)


def numbers(calibration: Calibration) -> Any:
    """What a calibration says, without the curves' last digits."""
    held_out = calibration.held_out
    assert held_out is not None
    return (
        calibration.temperatures,
        calibration.cross_fit,
        [round(e.value or 0, 12) for e in (*held_out.ece_before, *held_out.ece_after)],
    )


@pytest.mark.slow
def test_ray_gives_the_calibration_of_one_process(tmp_path: Path) -> None:
    """`--workers ray` on a cluster started here: the same temperatures, cross-fits and measures."""
    trace = on_disk(tmp_path / "trace", parts("straddling"))
    one, ray = (fit_calibration(trace, by="domain", workers=workers) for workers in (1, "ray"))  # type: ignore[arg-type]
    assert numbers(ray) == numbers(one)
    assert ray.by_group == one.by_group


@pytest.mark.slow
def test_a_file_that_is_gone_on_an_actor_is_told(tmp_path: Path) -> None:
    """An actor's error comes back as one a person can act on."""
    from dspark_calib.metrics.rows.ray_shards import shards_on_ray

    trace = on_disk(tmp_path / "trace", parts("straddling"))
    with shards_on_ray(JudgedTrace(open_trace(tmp_path / "trace"))) as judged:
        Path(str(trace.sources[3])).unlink()
        with pytest.raises(TraceFormatError, match="part-00003"):
            FitRows(judged, "cumulative")


def test_first_rounds_of_each_prompt_by_row_order(tmp_path: Path) -> None:
    """What a long trace's cross-fits look at: the first seven rounds of each prompt, also where it straddles files."""
    judged = JudgedTrace(on_disk(tmp_path / "trace", parts("straddling")))
    whole, few = (list(trace.batches()) for trace in (judged, judged.first_rounds(7)))
    seen: dict[int, int] = {}
    expected = []
    for batch in whole:
        for row, cluster in enumerate(batch.cluster.tolist()):
            seen[cluster] = seen.get(cluster, 0) + 1
            if seen[cluster] <= 7:
                expected.append(batch.logits[row])
    np.testing.assert_array_equal(np.concatenate([b.logits for b in few]), np.array(expected))
    assert judged.first_rounds(7).rounds == len(expected) == 7 * len(judged.clusters)
