"""Synthetic rounds whose true temperatures are known: for tests, benchmarks and the docs."""

import numpy as np
import numpy.typing as npt

from dspark_calib.survival import sigmoid
from dspark_calib.trace.labels import Labels
from dspark_calib.trace.provenance import Provenance
from dspark_calib.trace.rounds import Rounds


def synthetic_rounds(
    rng: np.random.Generator,
    *,
    prompts: int,
    rounds_per_prompt: int,
    temperatures: npt.ArrayLike,
    logit_mean: float = 1.7,
    logit_sd: float = 1.7,
    prompt_effect_sd: float = 0.0,
    first_prompt: int = 0,
    dataset: str = "synthetic",
    domain: str = "synthetic",
) -> Rounds:
    """Draw rounds in which draft k is accepted with probability σ(z_k/T_k + u) given its prefix.

    z_k = T_k · N(logit_mean, logit_sd²), so σ(z_k/T_k) is calibrated and σ(z_k) is not; u ~ N(0,
    prompt_effect_sd²) is shared by the rounds of a prompt. Raw logits therefore need exactly `temperatures`.

    Args:
        rng: Source of all randomness.
        prompts: Number of prompts, named p000000 … from `first_prompt` on.
        rounds_per_prompt: Rounds drawn for each.
        temperatures: True T_k, shape [γ].
        logit_mean: Mean of z_k/T_k.
        logit_sd: Standard deviation of z_k/T_k.
        prompt_effect_sd: Standard deviation of the effect a prompt has on all its labels, in logits.
        first_prompt: Number of the first prompt, so that batches do not share prompts.
        dataset: Name in the dataset column.
        domain: Name in the domain column.

    Returns:
        prompts · rounds_per_prompt rounds with every position observed.
    """
    true_t = np.asarray(temperatures, dtype=np.float64)
    n, gamma = prompts * rounds_per_prompt, len(true_t)
    calibrated = rng.normal(logit_mean, logit_sd, (n, gamma))
    effect = np.repeat(rng.normal(0.0, prompt_effect_sd, prompts), rounds_per_prompt)
    success = rng.random((n, gamma)) < sigmoid(calibrated + effect[:, None])
    accepted = np.cumprod(success, axis=1).sum(axis=1)
    names = tuple(f"p{first_prompt + i:06d}" for i in range(prompts))
    return Rounds(
        dataset=Labels.constant(dataset, n),
        domain=Labels.constant(domain, n),
        prompt_id=Labels(codes=np.repeat(np.arange(prompts, dtype=np.int32), rounds_per_prompt), names=names),
        ending=Labels.constant("eos", n),
        replicate=np.zeros(n, np.int16),
        prompt_length=np.full(n, 32, np.int32),
        response_length=np.full(n, 8 * rounds_per_prompt, np.int32),
        anchor=np.tile(32 + np.arange(rounds_per_prompt, dtype=np.int32), prompts),
        confidence_logits=(calibrated * true_t).astype(np.float32),
        accepted=accepted.astype(np.int16),
        observed=np.full(n, gamma, np.int16),
        verified=np.full(n, gamma, np.int16),
    )


def synthetic_provenance(gamma: int) -> Provenance:
    """Return the provenance of synthetic rounds."""
    return Provenance(
        gamma=gamma, source="synthetic", label_law="sampled", temperature=1.0, anchor_policy="loop", seed=0
    )
