"""The speed curve: target steps per second against verified tokens. No files here (see `curve_files`)."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dspark_calib.errors import CurveError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Lookup = Literal["ceiling", "floor", "linear"]
LOOKUPS: tuple[Lookup, ...] = ("ceiling", "floor", "linear")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileConditions:
    """What a curve was measured on, so that nobody uses it elsewhere.

    Attributes:
        target: Name of the verifying model.
        device: Such as `cpu` or the name of the GPU.
        dtype: Of weights and activations.
        context: Tokens in the KV cache of every request.
        query_length: Most tokens a request brings to one step, 1 + γ.
        threads: CPU threads.
        cuda_graphs: Whether the steps were replayed from CUDA graphs.
        versions: Version of each library by name.
    """

    target: str
    device: str
    dtype: str
    context: int
    query_length: int
    threads: int
    cuda_graphs: bool
    versions: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One point in the units people read.

    Attributes:
        tokens: B.
        steps_per_second: SPS(B).
    """

    tokens: int
    steps_per_second: float

    @property
    def step_ms(self) -> float:
        """Milliseconds of one step."""
        return 1000.0 / self.steps_per_second

    @property
    def tokens_per_second(self) -> float:
        """B·SPS(B): throughput if every verified token were accepted."""
        return self.tokens * self.steps_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class SpsCurve:
    """SPS(B): steps per second of the target when B tokens are verified in one step (DSpark, §3.3).

    Speeds need not fall with B: a profiled curve is jagged where kernels or CUDA graphs change.

    Attributes:
        tokens: Measured B, int64 [points], strictly increasing.
        steps_per_second: float64 [points], positive.
        lookup: What holds between two points. `ceiling`: the speed of the next larger point, as an engine that
            pads to captured CUDA graphs runs (DeepInfer). `floor`: the next smaller one (SGLang's table).
            `linear`: the step time interpolated, for devices without graphs.
        max_tokens: Largest B of one step; more is run as several steps. At least the last point.
        samples_ms: Raw step times of each point in milliseconds, or None where the file had none.
        conditions: What it was measured on, None where unknown.
    """

    tokens: Integers
    steps_per_second: Floats
    lookup: Lookup
    max_tokens: int
    samples_ms: tuple[tuple[float, ...], ...] | None = None
    conditions: ProfileConditions | None = None

    @property
    def step_ms(self) -> Floats:
        """Milliseconds of one step at each point, float64 [points]."""
        return np.asarray(1000.0 / self.steps_per_second, dtype=np.float64)

    def points(self) -> list[CurvePoint]:
        """Return the points one by one."""
        pairs = zip(self.tokens.tolist(), self.steps_per_second.tolist(), strict=True)
        return [CurvePoint(tokens=b, steps_per_second=speed) for b, speed in pairs]

    def seconds_by_tokens(self, largest: int) -> Floats:
        """Return the time of a step of B tokens for B = 0..largest.

        Below the first point the first point's time holds, above `max_tokens` the batch is cut into full steps
        of `max_tokens` and a rest, so no speed is ever invented.

        Args:
            largest: Largest B asked for.

        Returns:
            Seconds, float64 [largest + 1]; entry 0 is 0.
        """
        single = self._single_step_seconds(min(largest, self.max_tokens))
        if largest <= self.max_tokens:
            return single
        full, rest = np.divmod(np.arange(largest + 1), self.max_tokens)
        return np.asarray(full * single[self.max_tokens] + single[rest], dtype=np.float64)

    def speeds_by_tokens(self, largest: int) -> Floats:
        """Return SPS(B) for B = 0..largest, 0 above `max_tokens`, where a scheduler must not go.

        Returns:
            Steps per second, float64 [largest + 1]; entry 0 is 0.
        """
        speeds = np.zeros(largest + 1)
        single = self._single_step_seconds(min(largest, self.max_tokens))
        speeds[1 : len(single)] = 1.0 / single[1:]
        return speeds

    def _single_step_seconds(self, largest: int) -> Floats:
        b = np.arange(largest + 1)
        at_points = 1.0 / self.steps_per_second
        if self.lookup == "linear":
            seconds = np.interp(b, self.tokens, at_points)
        else:
            side: Literal["left", "right"] = "left" if self.lookup == "ceiling" else "right"
            point = np.searchsorted(self.tokens, b, side) - (self.lookup == "floor")
            seconds = at_points[np.clip(point, 0, len(self.tokens) - 1)]
        seconds[0] = 0.0
        return np.asarray(seconds, dtype=np.float64)

    def check_concurrency(self, concurrency: int) -> None:
        """Refuse more requests than one step can hold, as DeepInfer's scheduler does.

        Raises:
            CurveError: Naming the last point.
        """
        if concurrency > self.max_tokens:
            raise CurveError(
                f"concurrency {concurrency} is beyond the curve, which ends at {self.max_tokens} tokens a step; "
                "profile larger batches or lower the concurrency"
            )


def make_curve(
    tokens: npt.ArrayLike,
    steps_per_second: npt.ArrayLike,
    *,
    lookup: Lookup = "linear",
    max_tokens: int | None = None,
    samples_ms: tuple[tuple[float, ...], ...] | None = None,
    conditions: ProfileConditions | None = None,
    where: str = "curve",
) -> SpsCurve:
    """Check the points and freeze them.

    Args:
        tokens: B of each point, whole numbers ≥ 1, strictly increasing.
        steps_per_second: Speed at each point, positive and finite; any order is legal.
        lookup: What holds between two points.
        max_tokens: Largest B of one step; None means the last point.
        samples_ms: Raw step times of each point.
        conditions: What it was measured on.
        where: File name for messages.

    Raises:
        CurveError: Naming the file, the point and the value that is wrong.
    """
    b = _numbers(tokens, f"{where}, tokens")
    speeds = _numbers(steps_per_second, f"{where}, steps_per_second")
    if len(b) == 0 or len(b) != len(speeds):
        raise CurveError(
            f"{where}: {len(b)} token counts and {len(speeds)} speeds; expected one speed a count, not none"
        )
    if lookup not in LOOKUPS:
        raise CurveError(f"{where}, lookup = {lookup!r}: expected one of {', '.join(LOOKUPS)}")
    _check_points(b, speeds, where)
    last = int(b[-1])
    if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < last):
        raise CurveError(
            f"{where}, max_tokens = {max_tokens!r}: expected a whole number, at least the last point, {last}"
        )
    return SpsCurve(
        tokens=_frozen(b.astype(np.int64)),
        steps_per_second=_frozen(speeds),
        lookup=lookup,
        max_tokens=last if max_tokens is None else max_tokens,
        samples_ms=samples_ms,
        conditions=conditions,
    )


def _numbers(values: Any, where: str) -> Floats:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CurveError(f"{where}: expected a list of numbers, found {values!r}") from error
    if numbers.ndim != 1:
        raise CurveError(f"{where}: expected a flat list of numbers, found shape {numbers.shape}")
    return numbers


def _check_points(tokens: Floats, speeds: Floats, where: str) -> None:
    whole = np.isfinite(tokens) & (tokens >= 1) & (tokens == np.floor(tokens))
    rising = np.diff(tokens, prepend=0.0) > 0
    problems = (
        (~whole, tokens, "tokens", "expected a whole number of at least 1"),
        (~rising, tokens, "tokens", "token counts must rise strictly from point to point; sort and deduplicate them"),
        (~(np.isfinite(speeds) & (speeds > 0)), speeds, "speed", "expected a positive, finite speed; measure it again"),
    )
    for broken, values, field, rule in problems:
        if broken.any():
            point = int(np.argmax(broken))
            raise CurveError(f"{where}, point {point + 1}, {field} = {values[point]:g}: {rule}")


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array = array.copy()
    array.setflags(write=False)
    return array
