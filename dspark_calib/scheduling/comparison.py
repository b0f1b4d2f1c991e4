"""Runs the grid behind a `Simulation`: every policy, confidence source and concurrency, then the choice."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dspark_calib.scheduling.confidence_source import Confidences
from dspark_calib.scheduling.curve import SpsCurve
from dspark_calib.scheduling.policies import check_replayable
from dspark_calib.scheduling.policy import CappedPolicy, Policy
from dspark_calib.scheduling.recommendation import Recommendation, choose_replay, recommend
from dspark_calib.scheduling.replay import ReplayResult, replay_policy
from dspark_calib.scheduling.responses import Responses
from dspark_calib.scheduling.simulation import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """What stays the same over all replays of a simulation."""

    responses: Responses
    sources: Sequence[Confidences]
    policies: Sequence[Policy]
    curve: SpsCurve
    requests: int | None
    seed: int

    def run(self, policy: Policy, source: Confidences, concurrency: int) -> ReplayResult:
        return replay_policy(
            self.responses,
            source,
            policy,
            self.curve,
            concurrency=concurrency,
            requests=self.requests,
            seed=self.seed,
        )

    def recommend(self, chosen: ReplayResult, replays: Sequence[ReplayResult]) -> Recommendation:
        policy = next(p for p in self.policies if p.name == chosen.policy)
        source = next(s for s in self.sources if s.source == chosen.confidence)

        def run_capped(gamma: int) -> ReplayResult:
            return self.run(CappedPolicy(inner=policy, gamma=gamma), source, chosen.concurrency)

        gamma = self.responses.gamma
        caps = range(1, gamma) if self.responses.every_anchor else range(0)  # a loop trace has no shorter rounds
        return recommend(chosen, replays, run_capped, caps, gamma=gamma, uses_confidence=policy.uses_confidence)


def compute_simulation(
    responses: Responses,
    sources: Sequence[Confidences],
    policies: Sequence[Policy],
    curve: SpsCurve,
    concurrencies: Sequence[int],
    *,
    trace: str = "trace",
    evaluation: str | None = None,
    min_user_speed: float | None = None,
    requests: int | None = None,
    seed: int = 0,
    warnings: Sequence[str] = (),
    on_replay: Callable[[], None] | None = None,
) -> Simulation:
    """Replay every policy under every confidence source at every concurrency, then recommend.

    Args:
        responses: The trace, indexed.
        sources: Raw confidences and, where there are any, calibrated ones and the oracle's.
        policies: At least one, with different names.
        curve: Speeds of the target.
        concurrencies: R values.
        trace: Name for messages.
        evaluation: How the calibrated confidences relate to the trace.
        min_user_speed: Tokens per second a user must get.
        requests: Requests to finish in each replay; None: every response once, at least 2·R.
        seed: Of the order in which responses are drawn again.
        warnings: What the reader must know already.
        on_replay: Called after each replay of the grid.

    Raises:
        CurveError: If a concurrency is beyond the curve.
        PolicyError: If a policy shortens verification and the trace holds only loop anchors.
    """
    for policy in policies:
        check_replayable(policy, responses.gamma, every_anchor=responses.every_anchor, trace=trace)
    for concurrency in concurrencies:
        curve.check_concurrency(concurrency)
    grid = _Grid(responses=responses, sources=sources, policies=policies, curve=curve, requests=requests, seed=seed)
    replays: list[ReplayResult] = []
    for concurrency in concurrencies:
        for policy in policies:
            for source in sources:
                replays.append(grid.run(policy, source, concurrency))
                if on_replay is not None:
                    on_replay()
    recommendations, best_under_sla = _choose(grid, replays, concurrencies, min_user_speed)
    return Simulation(
        trace=trace,
        evaluation=evaluation,
        curve=curve,
        replays=tuple(replays),
        min_user_speed=min_user_speed,
        recommendations=recommendations,
        best_under_sla=best_under_sla,
        warnings=(*warnings, *_warnings(responses, replays, concurrencies)),
    )


def _choose(
    grid: _Grid, replays: Sequence[ReplayResult], concurrencies: Sequence[int], min_user_speed: float | None
) -> tuple[tuple[Recommendation, ...], Recommendation | None]:
    """Return the choice at each concurrency, and the one of highest throughput under the bound on user speed."""
    chosen = {r: choose_replay([x for x in replays if x.concurrency == r], grid.policies) for r in concurrencies}
    recommendations = {r: grid.recommend(x, replays) for r, x in chosen.items() if x is not None}
    if min_user_speed is None:
        return tuple(recommendations.values()), None
    best = choose_replay(replays, grid.policies, min_user_speed=min_user_speed)
    if best is None:
        return tuple(recommendations.values()), None
    same = best is chosen[best.concurrency]
    return tuple(recommendations.values()), recommendations[best.concurrency] if same else grid.recommend(best, replays)


def _warnings(responses: Responses, replays: Sequence[ReplayResult], concurrencies: Sequence[int]) -> list[str]:
    found = [
        f"concurrency {r} is above the {responses.count} responses of the trace: they are drawn again in a fixed "
        "shuffled order, each pass its own replicate"
        for r in concurrencies
        if r > responses.count
    ]
    oversized: dict[tuple[str, int], int] = {}
    for r in replays:
        cell = (r.policy, r.concurrency)
        oversized[cell] = max(oversized.get(cell, 0), r.oversized_steps)
    found += [
        f"{policy} at concurrency {concurrency}: {steps} steps hold more tokens than the curve's largest batch, "
        "and were run as several"
        for (policy, concurrency), steps in oversized.items()
        if steps
    ]
    if responses.prompts < 2:
        found.append("one prompt only: there are no intervals, since prompts are what varies")
    return found
