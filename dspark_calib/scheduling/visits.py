"""The closed loop: R slots draw prompts in order, verify as the policy says and move through their responses."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.scheduling.confidence_source import Confidences
from dspark_calib.scheduling.policy import Floats, Integers, Policy, Step
from dspark_calib.scheduling.responses import Responses

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Visits:
    """Every round of a replay, step by step.

    Attributes:
        row: Row of the trace, int64 [steps, R].
        verified: ℓ, drafts verified, int64 [steps, R].
        request: Number of the request in drawing order, int64 [steps, R].
        passes: Times the responses were gone through, the last maybe in part; 1 when none was drawn twice.
    """

    row: Integers
    verified: Integers
    request: Integers
    passes: int

    def rows_of_first_pass(self, responses: int) -> Integers:
        """Return the rows visited by the first request of each response, int64, ascending.

        Args:
            responses: Number of responses of the trace.
        """
        return np.sort(self.row[self.request < responses])


class RequestQueue:
    """Draws responses: first all in order, then again and again in an order shuffled by (seed, pass)."""

    def __init__(self, responses: int, seed: int) -> None:
        self.seed = seed
        self.responses = responses
        self.drawn = 0
        self._order = np.arange(responses)

    def draw(self, number: int) -> Integers:
        """Return the next `number` responses, int64 [number]."""
        while self.drawn + number > len(self._order):
            shuffled = np.random.default_rng((self.seed, self.passes)).permutation(self.responses)
            self._order = np.concatenate([self._order, shuffled])
        self.drawn += number
        return self._order[self.drawn - number : self.drawn]

    @property
    def passes(self) -> int:
        """Passes begun."""
        return len(self._order) // self.responses


def visit_rounds(
    responses: Responses,
    confidences: Confidences,
    policy: Policy,
    *,
    speeds: Floats,
    concurrency: int,
    requests: int,
    seed: int,
    on_finished: Callable[[int], None] | None = None,
) -> Visits:
    """Run the closed loop until the first `requests` requests have finished; finished slots draw on meanwhile.

    Args:
        responses: What can be drawn.
        confidences: What the policy believes of every row.
        policy: Decides the verified drafts of each step.
        speeds: SPS(B) by B for the policy, float64, at least R·(1 + γ) + 1 entries.
        concurrency: R.
        requests: Requests to finish, at least R so that every slot is used.
        seed: Of the order of later passes.
        on_finished: Called with the number of requests newly finished.
    """
    slots = _Slots(responses, concurrency, seed)
    log: list[tuple[Integers, Integers, Integers]] = []
    unfinished = requests
    while unfinished > 0:
        verified = policy.verified_lengths(slots.step(confidences, speeds))
        log.append((slots.row, verified, slots.request))
        newly = int(np.count_nonzero(slots.move(verified) < requests))
        unfinished -= newly
        if on_finished is not None and newly:
            on_finished(newly)
    rows, lengths, owners = (np.stack(column) for column in zip(*log, strict=True))
    return Visits(row=rows, verified=lengths, request=owners, passes=-(-slots.queue.drawn // responses.count))


class _Slots:
    """R requests in service; arrays are replaced, never changed, because the log keeps them."""

    def __init__(self, responses: Responses, concurrency: int, seed: int) -> None:
        self.responses = responses
        self.queue = RequestQueue(responses.count, seed)
        response = self.queue.draw(concurrency)
        self.request = np.arange(concurrency)
        self.row = responses.start[response]
        self.end = responses.end[response]
        self.previous = np.full(concurrency, NOBODY)

    def step(self, confidences: Confidences, speeds: Floats) -> Step:
        """Return what the policy sees of the waiting blocks."""
        lagged = confidences.survival[self.previous]
        lagged[self.previous == NOBODY] = np.nan
        return Step(
            confidence=confidences.conditional[self.row],
            survival=confidences.survival[self.row],
            lagged_survival=lagged,
            speeds=speeds,
        )

    def move(self, verified: Integers) -> Integers:
        """Move every slot to its next block or request; return the numbers of the requests that finished."""
        following = self.row + _advance(self.responses, self.row, verified)
        done = following >= self.end
        self.previous = np.where(done, NOBODY, self.row)
        self.row = following
        if not done.any():
            return np.empty(0, dtype=np.int64)
        finished = self.request[done]
        number = self.queue.drawn
        fresh = self.queue.draw(len(finished))
        self.row[done] = self.responses.start[fresh]
        self.end, self.request = self.end.copy(), self.request.copy()
        self.end[done] = self.responses.end[fresh]
        self.request[done] = number + np.arange(len(fresh))
        return finished


def _advance(responses: Responses, row: Integers, verified: npt.NDArray[np.int64]) -> Integers:
    if not responses.every_anchor:  # a loop trace holds just the next round of full verification
        return np.ones_like(row)
    return np.minimum(responses.accepted[row], verified) + 1
