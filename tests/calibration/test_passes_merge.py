"""Every pass over rows: two parts merged are the whole, whatever the rows, the split and the batches.

A new pass has to be listed here: the last test finds the ones that are not.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dspark_calib.calibration
import dspark_calib.metrics
from dspark_calib.calibration.fitting.identifiability import SurveyPass
from dspark_calib.calibration.fitting.objective import ClusterPass, TotalPass
from dspark_calib.calibration.fitting.sketch import SketchPass
from dspark_calib.calibration.fitting.zoom import NearPass, NearTotalPass
from dspark_calib.calibration.rows.fit_rows import CountPass, GatherPass
from dspark_calib.calibration.rows.row_blocks import PositionBlock, RowBlock, RowChoice
from dspark_calib.metrics.acceptance import AcceptanceSums, RoundFacts
from dspark_calib.metrics.rows.judged_rows import JudgedBatch, compact
from dspark_calib.metrics.rows.passes import run_pass
from dspark_calib.metrics.sums.composed import ComposedRankPass, ComposePass
from dspark_calib.metrics.sums.composed_rows import RateSets
from dspark_calib.metrics.sums.composed_sums import ComposedRanks, ComposedShape
from dspark_calib.metrics.sums.placements import PlacementTables
from dspark_calib.metrics.sums.view_passes import RankPass, ViewPass
from dspark_calib.survival import sigmoid

GAMMA, CLUSTERS, BINS = 3, 4, 5
GROUP = np.array([0, 1, 0, 1], dtype=np.int32)
TEMPERATURES = np.array([0.3, 1.0, 2.7])


def drawn(seed: int, rows: int) -> JudgedBatch:
    """Random rounds with ties and saturated logits; some labels unobserved, some rounds cut."""
    rng = np.random.default_rng(seed)
    observed = rng.integers(0, GAMMA + 1, rows).astype(np.int16)
    logits = rng.normal(1, 2, (rows, GAMMA)).round(rng.integers(0, 3))
    logits[rng.random(logits.shape) < 0.05] *= 1e4
    return JudgedBatch(
        logits=logits.astype(np.float32),
        accepted=np.minimum(observed, rng.integers(0, GAMMA + 1, rows)).astype(np.int16),
        observed=observed,
        cluster=rng.integers(0, CLUSTERS, rows).astype(np.int32),
        cut=observed < GAMMA,
    )


def rounds_of(batch: JudgedBatch) -> RowBlock:
    """The same rows as a fit sees them, all positions."""
    present, local = compact(batch.cluster)
    return RowBlock(logits=batch.logits, accepted=batch.accepted, observed=batch.observed, local=local, present=present)


def position_of(batch: JudgedBatch) -> PositionBlock:
    """The same rows as a fit sees them at position 2."""
    block, rows = rounds_of(batch), batch.observed > 1
    return PositionBlock(
        logit=batch.logits[rows, 1].astype(np.float64),
        prior=sigmoid(batch.logits[rows, 0]),
        label=(batch.accepted[rows] > 1).astype(np.float64),
        local=block.local[rows],
        present=block.present,
    )


def judged_of(batch: JudgedBatch) -> PositionBlock:
    """The rows whose draft 2 was judged, as a fit by likelihood sees them: nothing comes before."""
    kept = batch.take(batch.accepted > 0)
    block = position_of(kept)
    return replace(block, prior=np.ones(len(block)))


@dataclass(frozen=True)
class Case:
    """A pass, and the form in which it takes rows."""

    pass_: Any
    form: Callable[[JudgedBatch], Any]


def as_they_are(batch: JudgedBatch) -> JudgedBatch:
    """The rows of a trace."""
    return batch


def _view_pass(view: Any) -> Callable[[JudgedBatch], Case]:
    whole = ViewPass(view=view, temperatures=None, group=GROUP, groups=2, gamma=GAMMA, bins=BINS)
    return lambda _: Case(whole, as_they_are)


def _rank_pass(view: Any) -> Callable[[JudgedBatch], Case]:
    def made(everything: JudgedBatch) -> Case:
        sums = run_pass(_view_pass(view)(everything).pass_, [everything])
        tables = PlacementTables(sums, GROUP)
        return Case(RankPass(view=view, temperatures=None, tables=tables, clusters=CLUSTERS), as_they_are)

    return made


def _curves() -> RateSets:
    rates = np.random.default_rng(7).random((2, GAMMA, BINS))
    rates[0, 1, 2] = np.nan
    return RateSets(rates=rates, set_of=GROUP)


SHAPE = ComposedShape(clusters=CLUSTERS, sets=2, gamma=GAMMA, bins=BINS)


def _compose_pass(_: JudgedBatch) -> Case:
    return Case(ComposePass(_curves(), None, SHAPE), as_they_are)


def _composed_rank_pass(everything: JudgedBatch) -> Case:
    ranks = ComposedRanks(run_pass(_compose_pass(everything).pass_, [everything]))
    return Case(ComposedRankPass(_curves(), None, SHAPE, ranks), as_they_are)


def _survey_pass(view: Any) -> Callable[[JudgedBatch], Case]:
    return lambda _: Case(SurveyPass(view=view, gamma=GAMMA, clusters=CLUSTERS), rounds_of)


def _count_pass(view: Any) -> Callable[[JudgedBatch], Case]:
    choice = RowChoice(view=view, number=np.arange(CLUSTERS), all_rows=False)
    return lambda _: Case(CountPass(choice=choice, gamma=GAMMA), rounds_of)


def _gather_pass(limit: int | None) -> Callable[[JudgedBatch], Case]:
    return lambda _: Case(GatherPass(clusters=CLUSTERS, limit=limit), rounds_of)


def _objective_passes(objective: Any) -> dict[str, Callable[[JudgedBatch], Case]]:
    by_cluster = ClusterPass(clusters=CLUSTERS, objective=objective, temperatures=TEMPERATURES, bins=BINS)
    total = TotalPass(objective=objective, temperatures=TEMPERATURES, bins=BINS)
    form = judged_of if objective == "nll" else position_of
    return {
        f"ClusterPass {objective}": lambda _: Case(by_cluster, form),
        f"TotalPass {objective}": lambda _: Case(total, form),
    }


def _near_pass(_: JudgedBatch) -> Case:
    cells = np.random.default_rng(3).random((16, 8)) < 0.5
    return Case(NearPass(cells), position_of)


def _near_total_pass(batch: JudgedBatch) -> Case:
    near = _near_pass(batch)
    totals = TotalPass(objective="ece", temperatures=TEMPERATURES, bins=BINS)
    return Case(NearTotalPass(near.pass_.cells, totals), position_of)


CASES: dict[str, Callable[[JudgedBatch], Case]] = {
    "ViewPass cumulative": _view_pass("cumulative"),
    "ViewPass conditional": _view_pass("conditional"),
    "RankPass cumulative": _rank_pass("cumulative"),
    "RankPass conditional": _rank_pass("conditional"),
    "ComposePass": _compose_pass,
    "ComposedRankPass": _composed_rank_pass,
    "SurveyPass cumulative": _survey_pass("cumulative"),
    "SurveyPass conditional": _survey_pass("conditional"),
    "CountPass cumulative": _count_pass("cumulative"),
    "CountPass conditional": _count_pass("conditional"),
    "GatherPass all": _gather_pass(None),
    "GatherPass 3 of each": _gather_pass(3),
    **_objective_passes("ece"),
    **_objective_passes("brier"),
    **_objective_passes("nll"),
    "SketchPass 16 by 8": lambda _: Case(SketchPass(columns=16, height=8), position_of),
    "SketchPass 16 by 1": lambda _: Case(SketchPass(columns=16, height=1), position_of),
    "NearPass": _near_pass,
    "NearTotalPass": _near_total_pass,
}


def arrays_in(total: Any) -> Iterator[np.ndarray]:
    """All arrays of a total, depth first; lists of blocks are rows in order, however they are cut into blocks."""
    if isinstance(total, np.ndarray):
        yield total
    elif hasattr(total, "blocks"):
        found = total.blocks() if callable(total.blocks) else total.blocks
        yield from rows_in([block for block in found if len(block)])
        if hasattr(total, "seen"):
            yield total.seen
    elif is_dataclass(total):
        for field in fields(total):
            yield from arrays_in(getattr(total, field.name))


def rows_in(blocks: list[Any]) -> Iterator[np.ndarray]:
    """The columns of blocks joined, clusters by their own number."""
    for name in ("logits", "accepted", "observed", "logit", "prior", "label"):
        if blocks and hasattr(blocks[0], name):
            yield np.concatenate([getattr(block, name) for block in blocks])
    yield np.concatenate([block.present[block.local] for block in blocks]) if blocks else np.zeros(0)


def assert_equal(found: Any, expected: Any) -> None:
    """Counts exactly, sums to 1e-12."""
    pairs = list(zip(arrays_in(found), arrays_in(expected), strict=True))
    assert pairs
    for ours, theirs in pairs:
        if theirs.dtype.kind in "iub":
            np.testing.assert_array_equal(ours, theirs)
        else:
            scale = float(np.abs(theirs).max(initial=1.0))
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12 * scale)


def pieces(batch: JudgedBatch, edges: list[int]) -> list[JudgedBatch]:
    """The rows cut at the edges."""
    inner = sorted(min(edge, len(batch)) for edge in edges)
    return [
        batch.take(slice(a, b)) for a, b in zip([0, *inner], [*inner, len(batch)], strict=True) if b > a or not inner
    ]


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 60),
    split=st.integers(0, 60),
    edges=st.lists(st.integers(0, 60), max_size=3),
)
def test_two_parts_merged_are_the_whole(name: str, seed: int, rows: int, split: int, edges: list[int]) -> None:
    """merge(A, B), each in batches of its own, equals one pass over all rows at once; nothing adds nothing."""
    everything = drawn(seed, rows)
    case = CASES[name](everything)
    whole = run_pass(case.pass_, [case.form(everything)])
    first, second = everything.take(slice(0, split)), everything.take(slice(split, None))
    merged, other = (
        run_pass(case.pass_, [case.form(piece) for piece in pieces(part, edges)], threads=1) for part in (first, second)
    )
    case.pass_.merge(merged, other)
    assert_equal(merged, whole)
    case.pass_.merge(merged, case.pass_.zero())
    assert_equal(merged, whole)


@pytest.mark.parametrize("name", [n for n in CASES if not n.startswith(("GatherPass", "NearPass"))])
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), split=st.integers(0, 40))
def test_merging_in_the_other_order_changes_nothing(name: str, seed: int, split: int) -> None:
    """merge(B, A) is merge(A, B); passes that keep rows keep their order, and are left out."""
    everything = drawn(seed, 40)
    case = CASES[name](everything)
    first, second = (
        run_pass(case.pass_, [case.form(everything.take(rows))]) for rows in (slice(0, split), slice(split, None))
    )
    case.pass_.merge(second, first)
    assert_equal(second, run_pass(case.pass_, [case.form(everything)]))


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), split=st.integers(0, 8))
def test_acceptance_counts_of_two_parts_add_up(seed: int, split: int) -> None:
    """Facts of any batches, in any two heaps, over clusters that both share."""
    rng = np.random.default_rng(seed)

    def facts() -> RoundFacts:
        present = np.sort(rng.choice(CLUSTERS, rng.integers(1, CLUSTERS + 1), replace=False))
        wide = {"lengths": GAMMA + 1}
        counts = {
            name: rng.integers(0, 9, (len(present), wide.get(name, GAMMA)))
            for name in ("prefix", "observed", "judged", "lengths")
        }
        flat = {name: rng.integers(0, 9, len(present)) for name in ("tokens", "steps", "cut")}
        return RoundFacts(clusters=present, **counts, **flat)

    batches = [facts() for _ in range(8)]
    whole, first, second = (
        AcceptanceSums.of(part, CLUSTERS, GAMMA) for part in (batches, batches[:split], batches[split:])
    )
    assert_equal(first + second, whole)


def test_every_pass_of_the_library_is_listed() -> None:
    """A class with zero, part, add and merge is a pass; each is among the cases."""
    found = set()
    for package in (dspark_calib.metrics, dspark_calib.calibration):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for _, one in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if all(callable(getattr(one, method, None)) for method in ("zero", "part", "add", "merge")):
                    found.add(one.__name__)
    assert found - {"Pass"} == {name.split()[0] for name in CASES}
