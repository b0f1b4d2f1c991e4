"""The streaming test: bets that are fair under the null, prompts counted once, alarms that mean something."""

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest

from dspark_calib.decision.betting import Bets, Expected
from dspark_calib.decision.live_drift import expected_means, watch_drift
from dspark_calib.decision.prompt_units import MOST_ROUNDS, PromptUnits
from dspark_calib.errors import InsufficientData, TraceFormatError
from dspark_calib.trace import Trace
from dspark_calib.trace.readers.live_rounds import LiveRound
from dspark_calib.trace.synthetic import synthetic_provenance, synthetic_rounds


def expected(mean: float, room: float = 0.0) -> Expected:
    """Return one component."""
    return Expected(
        mean=np.array([mean]),
        variance=np.array([mean * (1 - mean)]),
        low=np.array([mean - room]),
        high=np.array([mean + room]),
    )


def slow_wealth(values: list[float], mean: float) -> tuple[float, float]:
    """The wealth of both bets by the words of the docstring: scalars, one observation after another."""
    seen, weight, spread, average = [], 10.0, 10.0 * mean * (1 - mean), mean
    rise = fall = 1.0
    for x in values:
        gap = average - mean
        variance = spread / weight
        rise *= 1 + min(max(gap / (variance + gap**2), 0.0), 0.5 / mean) * (x - mean)
        fall *= 1 + min(max(-gap / (variance + gap**2), 0.0), 0.5 / (1 - mean)) * (mean - x)
        seen.append(x)
        weight += 1
        before, average = average, average + (x - average) / weight
        spread += (x - before) * (x - average)
    return rise, fall


def test_wealth_equals_the_plain_product() -> None:
    """Π (1 + λ_t (x_t - m)) with λ_t from what came before."""
    values = np.random.default_rng(0).random(60).tolist()
    bets = Bets(expected(0.4))
    for x in values:
        bets.observe(np.array([x]), np.array([True]))
    assert np.exp(bets.log_wealth[:, 0]) == pytest.approx(slow_wealth(values, 0.4))
    assert bets.e_value == pytest.approx(sum(slow_wealth(values, 0.4)) / 2)


def test_an_unobserved_component_neither_wins_nor_learns() -> None:
    """A prompt without rounds at a position leaves its bets as they were."""
    bets = Bets(expected(0.4))
    bets.observe(np.array([1.0]), np.array([False]))
    assert bets.e_value == 1.0


def test_the_bets_are_fair_where_nothing_changed() -> None:
    """Over 20,000 streams of 50 fair coin flips the mean wealth is 1, and 1/α is reached in at most α of them."""
    rng = np.random.default_rng(0)
    n = 20_000
    one = expected(0.3)
    many = {name: np.repeat(getattr(one, name), n) for name in ("mean", "variance", "low", "high")}
    bets = Bets(Expected(**many))
    highest = np.zeros((2, n))
    for _ in range(50):
        bets.observe((rng.random(n) < 0.3).astype(float), np.ones(n, bool))
        highest = np.maximum(highest, bets.log_wealth)
    for wealth, top in zip(np.exp(bets.log_wealth), highest, strict=True):
        assert wealth.mean() == pytest.approx(1.0, abs=4 * wealth.std() / math.sqrt(n))
        assert (top >= math.log(20)).mean() <= 0.05


def units_of(*arrivals: str | None, quiet: int = 3) -> list[float]:
    """Return the means that close, when round i contributes the value i."""
    units = PromptUnits((1, 1), quiet=quiet)
    closed: list[float] = []
    for index, prompt in enumerate(arrivals):
        closed += [float(means[0, 0]) for means, _ in units.add(prompt, np.full((1, 1), float(index)), np.ones(1))]
    return closed


def test_prompts_close_in_the_order_of_arrival() -> None:
    """b is quiet before a is, but waits for a, so that short responses do not come first."""
    assert units_of("a", "b", "a", "a", "c", "c", "a", "c", "c") == []
    assert units_of("a", "b", "a", "a", "c", "c", "a", "c", "c", "c", "c") == [(0 + 2 + 3 + 6) / 4, 1.0]


def test_a_prompt_counts_once_and_with_a_bounded_number_of_rounds() -> None:
    """The first 100 rounds close it; what follows is left out."""
    units = PromptUnits((1, 1))
    closed = [u for i in range(3 * MOST_ROUNDS) for u in units.add("a", np.full((1, 1), float(i)), np.ones(1))]
    assert [float(means[0, 0]) for means, _ in closed] == [(MOST_ROUNDS - 1) / 2]
    assert list(units.finish()) == []


def test_rounds_without_id_join_blocks() -> None:
    """100 unnamed rounds are one observation."""
    units = PromptUnits((1, 1))
    assert sum(1 for _ in range(250) for _ in units.add(None, np.zeros((1, 1)), np.ones(1))) == 2
    assert len(list(units.finish())) == 1


def trace(seed: int, prompts: int = 100, mean: float = 1.7, per_prompt: int = 30) -> Trace:
    """Return a synthetic trace whose prompts differ in difficulty."""
    rounds = synthetic_rounds(
        np.random.default_rng(seed),
        prompts=prompts,
        rounds_per_prompt=per_prompt,
        temperatures=[1.0, 1.0, 1.0],
        logit_mean=mean,
        prompt_effect_sd=0.5,
        first_prompt=seed * 100_000,
    )
    return Trace.of(rounds, synthetic_provenance(3))


def stream(source: Trace, concurrency: int = 8) -> Iterator[LiveRound]:
    """Yield rounds as a server would log them: several requests at once, in turns."""
    rounds = source.read()
    prompts = rounds.prompt_id.decode()
    waiting = [[i for i, p in enumerate(prompts) if p == name] for name in dict.fromkeys(prompts)]
    running = [waiting.pop(0) for _ in range(concurrency)]
    while running:
        for rows in list(running):
            i = rows.pop(0)
            yield LiveRound(
                where=f"row {i}",
                prompt_id=prompts[i],
                logits=rounds.confidence_logits[i],
                accepted=int(rounds.accepted[i]),
                observed=int(rounds.observed[i]),
            )
            if not rows:
                running.remove(rows)
                running += [waiting.pop(0)] if waiting else []


def test_a_shift_is_found_and_its_absence_is_not() -> None:
    """Harder traffic raises the alarm within 3,000 rounds, the same traffic does not."""
    reference = trace(0, 200)
    shifted = list(watch_drift(reference, stream(trace(1, mean=0.7))))
    assert shifted[-1].alarm
    assert shifted[-1].leading.endswith("fell")
    assert not any(window.alarm for window in watch_drift(reference, stream(trace(2, 200))))


def test_windows_come_every_hundred_rounds_and_at_the_end() -> None:
    """3,030 rounds are 31 windows, each prompt is counted once, and a line of JSON says it."""
    windows = list(watch_drift(trace(0), stream(trace(3, 101))))
    assert [w.rounds for w in windows] == [*range(100, 3100, 100), 3030]
    assert windows[-1].prompts == 101
    assert json.loads(windows[-1].to_json_line())["alarm"] is False


def test_a_stream_of_another_block_size_is_refused() -> None:
    """The line is named; only a block cut after an accepted EOS may be shorter."""
    short = LiveRound(where="f, line 1", prompt_id=None, logits=np.zeros(2, np.float32), accepted=1, observed=2)
    with pytest.raises(TraceFormatError, match="f, line 1: 2 positions"):
        list(watch_drift(trace(0), [short]))
    cut = LiveRound(where="f, line 1", prompt_id=None, logits=np.zeros(2, np.float32), accepted=2, observed=2)
    assert len(list(watch_drift(trace(0), [cut]))) == 1


def test_a_reference_of_few_prompts_is_refused() -> None:
    """Nine prompts say too little about what is expected."""
    with pytest.raises(InsufficientData, match="at least 10"):
        expected_means(trace(0, 9), None)


@pytest.mark.slow
def test_false_alarms_over_a_hundred_thousand_rounds() -> None:
    """100 streams of 10⁵ rounds that never change, looked at after every prompt: at most 5 % raise an alarm."""
    alarms = 0
    for seed in range(100):
        bets = Bets(expected_means(trace(seed, 200, per_prompt=50), None))
        rounds = trace(10_000 + seed, 2000, per_prompt=50)
        units = expected_units(rounds)
        for unit in units:
            bets.observe(unit, np.ones(9, bool))
            if bets.e_value >= 25.0:
                alarms += 1
                break
    assert alarms <= 5


def expected_units(source: Trace) -> np.ndarray:
    """Return the nine means of each prompt: survival, acceptance, (bias + 1)/2, three positions each."""
    rounds = source.read()
    survival = np.cumprod(1 / (1 + np.exp(-rounds.confidence_logits.astype(np.float64))), axis=1)
    accepted = (rounds.accepted[:, None] > np.arange(3)).astype(np.float64)
    values = np.stack([survival, accepted, (survival - accepted + 1) / 2], axis=1)
    return values.reshape(-1, 50, 9).mean(axis=1)
