"""Drift on a stream, looked at as often as one likes.

Per prompt and position three means are watched: predicted survival, observed prefix acceptance, and their
difference under the temperatures in force. Bets against "as on the reference" (see `betting`) raise the
alarm; 1 % of false alarms is left to the uncertainty of the reference, 4 % to the bets.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from dspark_calib.decision.betting import Bets, Expected
from dspark_calib.decision.prompt_units import PromptUnits
from dspark_calib.errors import InsufficientData, TraceFormatError
from dspark_calib.survival import observed_mask, prefix_labels, prefix_survival
from dspark_calib.trace import Trace
from dspark_calib.trace.readers.live_rounds import LiveRound

Floats = npt.NDArray[np.float64]

SCHEMA = "dspark-calib/live-drift/1"
WINDOW_ROUNDS = 100
ALPHA = 0.05
_ALPHA_REFERENCE = 0.01
_MIN_PROMPTS = 10
_STATISTICS = ("predicted survival", "prefix acceptance", "bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWindow:
    """The state after a window of 100 rounds.

    Attributes:
        rounds: Rounds read so far.
        prompts: Prompts closed so far, each counted once.
        e_value: Evidence for drift; an alarm at `threshold`.
        threshold: 1/α of the bets.
        leading: What moved most: statistic, position and direction.
        acceptance: Accepted drafts a round in this window.
        by_prompt: Whether every round so far named its prompt.
    """

    rounds: int
    prompts: int
    e_value: float
    threshold: float
    leading: str
    acceptance: float
    by_prompt: bool

    @property
    def alarm(self) -> bool:
        """Whether the stream has drifted: false in at most 5 % of streams that never do."""
        return self.e_value >= self.threshold

    def to_json_line(self) -> str:
        """Return the window as one line of JSON."""
        body = {
            "schema": SCHEMA,
            "rounds": self.rounds,
            "prompts": self.prompts,
            "e_value": min(self.e_value, 1e300),
            "threshold": self.threshold,
            "alarm": self.alarm,
            "leading": self.leading,
            "accepted_per_round": self.acceptance,
            "by_prompt": self.by_prompt,
        }
        return json.dumps(body, allow_nan=False)


def watch_drift(
    reference: Trace, stream: Iterable[LiveRound], temperatures: tuple[float, ...] | None = None
) -> Iterator[LiveWindow]:
    """Yield the state after every 100 rounds of a stream, and after its end.

    Args:
        reference: What the temperatures were fitted on.
        stream: Rounds as they come.
        temperatures: In force, or None for raw confidences.

    Raises:
        InsufficientData: If the reference has fewer than 10 prompts.
        TraceFormatError: If a round has another γ than the reference.
    """
    gamma = reference.gamma
    bets = Bets(expected_means(reference, temperatures))
    units = PromptUnits((len(_STATISTICS), gamma))
    rounds = prompts = accepted = 0
    by_prompt = True

    def window(length: int) -> LiveWindow:
        return _window(bets, gamma, rounds, prompts, accepted / length, by_prompt=by_prompt)

    for live in stream:
        values, seen = round_values(live, gamma, temperatures)
        rounds, accepted = rounds + 1, accepted + live.accepted
        by_prompt = by_prompt and live.prompt_id is not None
        for means, counts in units.add(live.prompt_id, values, seen):
            prompts += 1
            _observe(bets, means, counts)
        if rounds % WINDOW_ROUNDS == 0:
            yield window(WINDOW_ROUNDS)
            accepted = 0
    for means, counts in units.finish():
        prompts += 1
        _observe(bets, means, counts)
    if rounds % WINDOW_ROUNDS:
        yield window(rounds % WINDOW_ROUNDS)


def expected_means(reference: Trace, temperatures: tuple[float, ...] | None) -> Expected:
    """Return the means per prompt of the reference, with room for their own uncertainty.

    Raises:
        InsufficientData: If it has fewer than 10 prompts.
    """
    found = list(_reference_units(reference, temperatures))
    if len(found) < _MIN_PROMPTS:
        raise InsufficientData(f"{reference.name}: {len(found)} prompts; --follow needs at least {_MIN_PROMPTS}")
    values = np.stack([_unit_interval(means).reshape(-1) for means, _ in found])
    defined = np.stack([np.tile(counts > 0, len(_STATISTICS)) for _, counts in found])
    count = np.maximum(defined.sum(axis=0), 1)
    mean = (values * defined).sum(axis=0) / count
    variance = ((values - mean) ** 2 * defined).sum(axis=0) / count
    room = float(norm.isf(_ALPHA_REFERENCE / (2 * len(mean)))) * np.sqrt(variance / count)
    return Expected(mean=mean, variance=variance, low=np.maximum(mean - room, 0.0), high=np.minimum(mean + room, 1.0))


def round_values(live: LiveRound, gamma: int, temperatures: tuple[float, ...] | None) -> tuple[Floats, Floats]:
    """Return what a round contributes, shape [3, γ], and which positions it shows, shape [γ].

    Raises:
        TraceFormatError: If the round has another γ; only a block cut after an accepted EOS may be shorter.
    """
    length = len(live.logits)
    if length > gamma or (length < gamma and live.accepted < length):
        raise TraceFormatError(f"{live.where}: {length} positions, the reference has γ = {gamma}")
    logits = np.concatenate([live.logits, np.zeros(gamma - length, np.float32)])
    survival = prefix_survival(logits[None], temperatures)[0]
    labels = prefix_labels([live.accepted], gamma)[0].astype(np.float64)
    seen = observed_mask([live.observed], gamma)[0].astype(np.float64)
    return np.stack([survival, labels, survival - labels]) * seen, seen


def _reference_units(reference: Trace, temperatures: tuple[float, ...] | None) -> Iterator[tuple[Floats, Floats]]:
    gamma = reference.gamma
    units = PromptUnits((len(_STATISTICS), gamma), quiet=reference.num_rounds)
    for rounds in reference.batches(optional=()):
        survival = prefix_survival(rounds.confidence_logits, temperatures)
        labels = prefix_labels(rounds.accepted, gamma).astype(np.float64)
        seen = observed_mask(rounds.observed, gamma).astype(np.float64)
        values = np.stack([survival, labels, survival - labels], axis=1) * seen[:, None]
        names = zip(rounds.dataset.decode(), rounds.prompt_id.decode(), strict=True)
        for row, (dataset, prompt) in enumerate(names):
            yield from units.add(None if prompt is None else f"{dataset}/{prompt}", values[row], seen[row])
    yield from units.finish()


def _unit_interval(means: Floats) -> Floats:
    """Map the bias from [-1, 1] to [0, 1]; the other two lie there."""
    scaled = means.copy()
    scaled[2] = (scaled[2] + 1.0) / 2.0
    return scaled


def _observe(bets: Bets, means: Floats, counts: Floats) -> None:
    bets.observe(_unit_interval(means).reshape(-1), np.tile(counts > 0, len(_STATISTICS)))


def _window(bets: Bets, gamma: int, rounds: int, prompts: int, acceptance: float, *, by_prompt: bool) -> LiveWindow:
    direction, component = np.unravel_index(int(np.argmax(bets.log_wealth)), bets.log_wealth.shape)
    statistic, position = divmod(int(component), gamma)
    moved = f"{_STATISTICS[statistic]} at position {position + 1} {'fell' if direction else 'rose'}"
    return LiveWindow(
        rounds=rounds,
        prompts=prompts,
        e_value=bets.e_value,
        threshold=1.0 / (ALPHA - _ALPHA_REFERENCE),
        leading=moved,
        acceptance=acceptance,
        by_prompt=by_prompt,
    )
