"""Measures SPS(B): decode forwards of a target over a filled KV cache, R requests × (1 + ℓ) tokens at a time."""

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dspark_calib.collection.target import cache_keyword
from dspark_calib.errors import CurveError, MissingExtra
from dspark_calib.scheduling.curve import ProfileConditions, SpsCurve, make_curve

WARM_UPS = 3
TRIMMED_SHARE = 0.2
_SEED = 0  # of the token ids and cached keys; their values do not change the work


def split_batch(tokens: int, query_length: int) -> tuple[int, int]:
    """Return R requests of equal length whose queries together hold `tokens` tokens.

    Args:
        tokens: B.
        query_length: Most tokens a request brings, 1 + γ.

    Returns:
        R and tokens a request: the fewest requests that divide B, so that no query is longer than `query_length`.

    >>> split_batch(24, 8), split_batch(5, 8), split_batch(26, 8)
    ((3, 8), (1, 5), (13, 2))
    """
    fewest = -(-tokens // query_length)
    requests = next(r for r in range(fewest, tokens + 1) if tokens % r == 0)
    return requests, tokens // requests


def profile_target(
    model: Any,
    *,
    target: str,
    batch_sizes: Sequence[int],
    context: int,
    query_length: int,
    repeats: int = 20,
    on_point: Callable[[int], None] | None = None,
) -> SpsCurve:
    """Time one decode step of a transformers causal LM at each batch size.

    Every request has `context` cached tokens; the logits of all B new ones are computed, as verification needs them.
    On CUDA the step is captured once and replayed, which gives `ceiling` lookup; elsewhere `linear`. A point is the
    mean of its samples without the fastest and slowest fifth; all samples are kept.

    Args:
        model: On its device, in its dtype.
        target: Name for the record.
        batch_sizes: B values, tokens, at least 1; measured in ascending order, duplicates once.
        context: Tokens in the cache of every request, at least 1.
        query_length: Most tokens a request brings to a step, 1 + γ.
        repeats: Samples a point, at least 1.
        on_point: Called with B after each point.

    Raises:
        CurveError: If a value is out of range, or a batch does not fit into memory.
        MissingExtra: If torch or transformers are missing.
    """
    from scipy.stats import trim_mean

    for name, value in (("context", context), ("query length", query_length), ("repeats", repeats)):
        if value < 1:
            raise CurveError(f"{name} = {value}: expected at least 1")
    sizes = sorted(set(batch_sizes))
    if not sizes or sizes[0] < 1:
        raise CurveError(f"batch sizes {list(batch_sizes)}: expected token counts of at least 1")
    samples = []
    for tokens in sizes:
        samples.append(_measure(model, tokens, context, query_length, repeats))
        if on_point is not None:
            on_point(tokens)
    on_cuda = model.device.type == "cuda"
    return make_curve(
        sizes,
        [1000.0 / float(trim_mean(times, TRIMMED_SHARE)) for times in samples],
        lookup="ceiling" if on_cuda else "linear",
        samples_ms=tuple(samples),
        conditions=_conditions(model, target, context, query_length),
        where="profile",
    )


def _measure(model: Any, tokens: int, context: int, query_length: int, repeats: int) -> tuple[float, ...]:
    torch = _torch()
    requests, length = split_batch(tokens, query_length)
    try:
        with torch.inference_mode():
            step = DecodeStep(model, requests, length, context)
            with _replayable(model, step) as run:
                for _ in range(WARM_UPS):
                    run()
                return tuple(_milliseconds(model, run) for _ in range(repeats))
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise CurveError(
            f"{tokens} tokens ({requests} requests with {context} cached tokens) do not fit into memory; "
            "profile smaller batches or a shorter context"
        ) from error


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("torch", "collect", "profiling a target") from error
    return torch


def _static_cache(model: Any, entries: int) -> Any:
    from transformers import StaticCache

    return StaticCache(config=model.config, max_cache_len=entries)


class DecodeStep:
    """One verification step over a cache that already holds `context` random tokens a request.

    Attributes:
        tokens: Token ids of the step, int64 [R, 1 + ℓ].
        cache: A static cache of context + 1 + ℓ entries a request.
    """

    def __init__(self, model: Any, requests: int, length: int, context: int) -> None:
        torch = _torch()
        generator = torch.Generator(device=model.device).manual_seed(_SEED)
        vocabulary = model.config.get_text_config().vocab_size
        positions = torch.arange(context, context + length, device=model.device)
        self.tokens = torch.randint(vocabulary, (requests, length), generator=generator, device=model.device)
        self.cache = _static_cache(model, context + length)
        self._model = model
        self._context = context
        self._arguments = {cache_keyword(model): self.cache}
        if "cache_position" in inspect.signature(model.forward).parameters:
            self._arguments["cache_position"] = positions
        self._positions = positions[None]
        self()  # allocates the cache with the shapes the model really uses
        for layer in self.cache.layers:
            layer.keys.normal_(generator=generator)
            layer.values.normal_(generator=generator)

    def __call__(self) -> Any:
        """Return the logits of all tokens, [R, 1 + ℓ, vocabulary]."""
        self._rewind()
        return self._model(
            input_ids=self.tokens, position_ids=self._positions, use_cache=True, **self._arguments
        ).logits

    def _rewind(self) -> None:
        """Let the next tokens follow the first `context` ones; transformers 4 goes by cache_position alone."""
        for layer in self.cache.layers:
            length: Any = getattr(layer, "cumulative_length", None)
            if isinstance(length, int):
                layer.cumulative_length = self._context
            elif length is not None:
                length.fill_(self._context)


@contextmanager
def _replayable(model: Any, step: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Yield the step itself, or on CUDA the replay of its graph, which holds the memory as long as it is needed."""
    if model.device.type != "cuda":
        yield step
        return
    torch = _torch()
    stream = torch.cuda.Stream(model.device)
    stream.wait_stream(torch.cuda.current_stream(model.device))
    with torch.cuda.stream(stream):  # kernels must have been chosen before the capture
        for _ in range(WARM_UPS):
            step()
    torch.cuda.current_stream(model.device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    yield graph.replay
    graph.reset()


def _milliseconds(model: Any, run: Callable[[], Any]) -> float:
    torch = _torch()
    on_cuda = model.device.type == "cuda"
    if on_cuda:
        torch.cuda.synchronize(model.device)
    start = time.perf_counter()
    run()
    if on_cuda:
        torch.cuda.synchronize(model.device)
    return 1000.0 * (time.perf_counter() - start)


def _conditions(model: Any, target: str, context: int, query_length: int) -> ProfileConditions:
    import transformers

    torch = _torch()
    on_cuda = model.device.type == "cuda"
    return ProfileConditions(
        target=target,
        device=torch.cuda.get_device_name(model.device) if on_cuda else model.device.type,
        dtype=str(model.dtype).removeprefix("torch."),
        context=context,
        query_length=query_length,
        threads=torch.get_num_threads(),
        cuda_graphs=on_cuda,
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
    )
