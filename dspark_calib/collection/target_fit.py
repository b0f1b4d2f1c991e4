"""Did this target write these responses? The evidence of one target forward, response by response.

For a token y drawn from p, log p(y) has mean -H(p) and variance Var_p(log p). So over a response the sum of
log p(y) + H(p), divided by the root of the summed variances, is about standard normal: a martingale sum.
Responses of another temperature, filter or model lie far off. Greedy responses are argmax throughout, ties of
rounding aside.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dspark_calib.collection.law import is_greedy
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.target_states import TargetForward

_LOGIT_ENTRIES = 1 << 25
"""Most float32 logits alive at once: 128 MiB."""
FAMILY_ERROR = 1e-4
"""Chance that a collection of the target's own responses is flagged at all, by the normal approximation."""
GREEDY_SHARE = 0.98
"""Least share of argmax tokens of greedy responses; bfloat16 engines break ties otherwise in 1 to 2 of 100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFit:
    """Sums over the tokens of one response.

    Attributes:
        tokens: Tokens judged.
        excess: Σ log p(y) + H(p), nats.
        variance: Σ Var_p(log p), nats².
        argmax: Tokens that are the target's most probable one.
    """

    tokens: int
    excess: float
    variance: float
    argmax: int

    @property
    def z(self) -> float:
        """The excess in standard deviations; 0 where the target leaves no choice."""
        return self.excess / math.sqrt(self.variance) if self.variance > 0 else 0.0


@torch.inference_mode()
def measure_target_fit(
    sequences: Sequence[ResponseSequence], target: TargetForward, temperature: float, batch_tokens: int
) -> tuple[TargetFit, ...]:
    """Judge responses by the target's own probabilities.

    Args:
        sequences: Prompts and responses.
        target: The model that is said to have written them.
        temperature: τ they are said to be sampled at; greedy ones are judged at τ = 1 for `excess`.
        batch_tokens: Most padded tokens of one forward.
    """
    part = max(1, batch_tokens // max(len(s.token_ids) for s in sequences))
    fits: list[TargetFit] = []
    for start in range(0, len(sequences), part):
        fits += _measure(sequences[start : start + part], target, 1.0 if is_greedy(temperature) else temperature)
    return tuple(fits)


def count_misfits(fits: Iterable[TargetFit], temperature: float) -> int:
    """Return how many responses the target would not have written; 0 where all could be its own.

    Sampled: |z| beyond the two-sided normal quantile that `FAMILY_ERROR` leaves to each of n responses; where
    none is, but all together are off (their pooled z), all of them. Greedy: those below `GREEDY_SHARE`, provided
    that all together are below it.
    """
    judged = [fit for fit in fits if fit.tokens]
    if not judged:
        return 0
    total = add_fits(judged)
    if is_greedy(temperature):
        enough = total.argmax >= GREEDY_SHARE * total.tokens
        return 0 if enough else sum(fit.argmax < GREEDY_SHARE * fit.tokens for fit in judged)
    flagged = sum(_tail(fit.z) < FAMILY_ERROR / len(judged) for fit in judged)
    return flagged or (len(judged) if _tail(total.z) < FAMILY_ERROR else 0)


def add_fits(fits: Iterable[TargetFit]) -> TargetFit:
    """Add up the sums."""
    listed = list(fits)
    return TargetFit(
        tokens=sum(f.tokens for f in listed),
        excess=math.fsum(f.excess for f in listed),
        variance=math.fsum(f.variance for f in listed),
        argmax=sum(f.argmax for f in listed),
    )


def _tail(z: float) -> float:
    """Return the two-sided tail of the standard normal."""
    return math.erfc(abs(z) / math.sqrt(2))


def _measure(sequences: Sequence[ResponseSequence], target: TargetForward, temperature: float) -> list[TargetFit]:
    longest = max(len(s.token_ids) for s in sequences)
    tokens = torch.zeros((len(sequences), longest), dtype=torch.int64)
    for row, sequence in zip(tokens, sequences, strict=True):
        row[: len(sequence.token_ids)] = torch.tensor(sequence.token_ids)
    tokens = tokens.to(target.device)
    final = target.run(tokens[:, :-1]).final
    return [_measure_one(s, tokens[i], final[i], target, temperature) for i, s in enumerate(sequences)]


def _measure_one(
    sequence: ResponseSequence, tokens: Tensor, final: Tensor, target: TargetForward, temperature: float
) -> TargetFit:
    start, end = sequence.prompt_length, len(sequence.token_ids)
    states, written = final[start - 1 : end - 1], tokens[start:end]
    first = target.logits(states[:1])
    chunk = max(1, _LOGIT_ENTRIES // first.shape[-1])
    sums = torch.zeros(3, dtype=torch.float64, device=tokens.device)
    for i in range(0, len(written), chunk):
        sums += _sums(target.logits(states[i : i + chunk]).float(), written[i : i + chunk], temperature)
    excess, variance, argmax = sums.tolist()
    return TargetFit(tokens=len(written), excess=excess, variance=variance, argmax=int(argmax))


def _sums(logits: Tensor, written: Tensor, temperature: float) -> Tensor:
    """Return Σ log p(y) + H, Σ Var(log p) and the argmax tokens of positions [n, V]."""
    log_p = torch.log_softmax(logits / temperature, dim=-1)
    p = log_p.exp()
    mean = (p * log_p).sum(dim=-1)
    variance = (p * (log_p - mean[:, None]).square()).sum(dim=-1)
    chosen = log_p.gather(1, written[:, None])[:, 0]
    is_argmax = chosen >= log_p.amax(dim=-1)
    return torch.stack([(chosen - mean).double().sum(), variance.double().sum(), is_argmax.double().sum()])
