"""What the target accepted: prefix and conditional acceptance and the accepted length τ, by cluster.

No confidence enters here, except through a scheduler that cut blocks by it; see `policy_cut`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dspark_calib.metrics.estimate import Estimate, normal_estimate
from dspark_calib.trace.rounds import UNKNOWN_ANCHOR, Rounds, offered_drafts

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Acceptance of one group of rounds, each number with its clustered interval.

    Attributes:
        prefix: P(first k drafts accepted), per position; None where the rounds were cut by a scheduler.
        conditional: P(draft k accepted | the first k-1 were), per position.
        judged: Rounds behind each conditional rate.
        accepted_length: τ, drafts and bonus token per round; rounds cut by the length limit are left out.
        lengths: Rounds with 0, 1, … γ accepted drafts.
    """

    prefix: tuple[Estimate, ...]
    conditional: tuple[Estimate, ...]
    judged: tuple[int, ...]
    accepted_length: Estimate
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts:
    """Counts of one batch, over its own clusters.

    Attributes:
        clusters: Cluster numbers, shape [c].
        prefix: Rows with the first k drafts accepted, shape [c, γ].
        observed: Rows with a label at k, shape [c, γ].
        judged: Rows whose draft k was judged given its prefix, shape [c, γ].
        lengths: Rows by number of accepted drafts, shape [c, γ+1].
        tokens: Tokens gained by the rounds that count for τ, shape [c].
        steps: Rounds that count for τ, shape [c].
        cut: Rows cut by a scheduler, shape [c].
    """

    clusters: Integers
    prefix: Integers
    observed: Integers
    judged: Integers
    lengths: Integers
    tokens: Integers
    steps: Integers
    cut: Integers


def policy_cut(rounds: Rounds) -> Booleans:
    """Return which rounds were cut by a scheduler rather than by their text, shape [n].

    A block may end early at an accepted EOS (then accepted = observed), at the length limit, or because its
    drafter offered fewer than γ drafts. Any other observed < γ is censoring by policy. Where the anchor or the
    ending is unknown, a block that was sent in full and accepted up to its last label counts as ended by its text.
    """
    ending = _endings(rounds)
    after = _tokens_after_anchor(rounds)
    known = (rounds.anchor != UNKNOWN_ANCHOR) & ((ending == "eos") | (ending == "length"))
    all_accepted = rounds.accepted == rounds.observed
    at_eos = all_accepted & np.where(known, rounds.observed == after, rounds.verified >= rounds.gamma)
    at_limit = np.where(known, rounds.observed >= np.minimum(after, offered_drafts(rounds)), True)
    return _short(rounds) & ~np.where(ending == "length", at_limit, at_eos)


def _endings(rounds: Rounds) -> npt.NDArray[np.str_]:
    return np.array([*rounds.ending.names, ""])[rounds.ending.codes]


def _tokens_after_anchor(rounds: Rounds) -> Integers:
    return rounds.prompt_length.astype(np.int64) + rounds.response_length - 1 - rounds.anchor


def _counts_for_length(rounds: Rounds) -> tuple[Booleans, Integers]:
    """Return which rounds count for τ, and the tokens each gained (an accepted EOS adds no bonus token)."""
    limited = (_endings(rounds) == "length") & _short(rounds)
    at_end = (rounds.accepted == rounds.observed) & _short(rounds) & ~policy_cut(rounds)
    known = (rounds.anchor != UNKNOWN_ANCHOR) & (_endings(rounds) == "eos")
    at_end |= known & (rounds.accepted == _tokens_after_anchor(rounds))  # EOS as the last of γ accepted drafts
    return ~limited, rounds.accepted.astype(np.int64) + ~at_end


def _short(rounds: Rounds) -> Booleans:
    return np.asarray(rounds.observed < offered_drafts(rounds))


def round_facts(rounds: Rounds, cluster: npt.NDArray[np.int32]) -> RoundFacts:
    """Count one batch by cluster.

    Args:
        rounds: n rounds.
        cluster: Cluster number of each, shape [n].
    """
    present, local = np.unique(cluster, return_inverse=True)
    counted, tokens = _counts_for_length(rounds)
    gamma, size = rounds.gamma, len(present)
    # Every count below follows from the joint histogram of (accepted, observed) within a cluster.
    wide = gamma + 1
    code = (local * wide + rounds.accepted) * wide + rounds.observed
    joint = np.bincount(code, minlength=size * wide * wide).reshape(size, wide, wide)
    k = np.arange(1, wide)
    reached = joint[:, ::-1, ::-1].cumsum(1).cumsum(2)[:, ::-1, ::-1]  # accepted ≥ i and observed ≥ j
    return RoundFacts(
        clusters=present.astype(np.int64),
        prefix=reached[:, k, k],
        observed=reached[:, 0, k],
        judged=reached[:, k - 1, k],
        lengths=joint.sum(2),
        tokens=np.bincount(local, weights=np.where(counted, tokens, 0), minlength=size).astype(np.int64),
        steps=np.bincount(local, weights=counted, minlength=size).astype(np.int64),
        cut=np.bincount(local, weights=policy_cut(rounds), minlength=size).astype(np.int64),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceSums:
    """The counts of `RoundFacts` over all clusters of a trace; shapes start with C. Sums add up under `+`."""

    prefix: Integers
    observed: Integers
    judged: Integers
    lengths: Integers
    tokens: Integers
    steps: Integers
    cut: Integers

    @classmethod
    def of(cls, facts: Iterable[RoundFacts], clusters: int, gamma: int) -> "AcceptanceSums":
        """Add up batches."""
        widths = {"prefix": (gamma,), "observed": (gamma,), "judged": (gamma,), "lengths": (gamma + 1,)}
        sums = {name: np.zeros((clusters, *widths.get(name, ())), dtype=np.int64) for name in cls.__slots__}
        for batch in facts:
            for name, total in sums.items():
                total[batch.clusters] += getattr(batch, name)
        return cls(**sums)

    def __add__(self, other: "AcceptanceSums") -> "AcceptanceSums":
        return AcceptanceSums(**{n: getattr(self, n) + getattr(other, n) for n in AcceptanceSums.__slots__})

    def of_clusters(self, members: npt.NDArray[np.generic]) -> "AcceptanceSums":
        """Select clusters by mask or index."""
        return AcceptanceSums(**{n: getattr(self, n)[members] for n in AcceptanceSums.__slots__})

    @property
    def censored(self) -> int:
        """Rounds cut by a scheduler."""
        return int(self.cut.sum())

    @property
    def rounds(self) -> int:
        """All rounds."""
        return int(self.lengths.sum())


def compute_acceptance(sums: AcceptanceSums) -> Acceptance:
    """Return acceptance with clustered intervals (the usual linearised variance of a ratio)."""
    gamma = sums.prefix.shape[1]
    cut = sums.censored > 0
    prefix = tuple(
        Estimate(value=None) if cut else ratio_estimate(sums.prefix[:, k], sums.observed[:, k]) for k in range(gamma)
    )
    return Acceptance(
        prefix=prefix,
        conditional=tuple(ratio_estimate(sums.prefix[:, k], sums.judged[:, k]) for k in range(gamma)),
        judged=tuple(int(n) for n in sums.judged.sum(axis=0)),
        accepted_length=ratio_estimate(sums.tokens, sums.steps, highest=float(gamma + 1)),
        lengths=tuple(int(n) for n in sums.lengths.sum(axis=0)),
    )


def ratio_estimate(
    numerator: npt.NDArray[np.generic],
    denominator: npt.NDArray[np.generic],
    *,
    lowest: float = 0.0,
    highest: float = 1.0,
) -> Estimate:
    """Return Σ numerator / Σ denominator over clusters with its clustered standard error.

    Args:
        numerator: Sum of each cluster, shape [C].
        denominator: Rows of each cluster, shape [C].
        lowest: Smallest value the ratio can take.
        highest: Largest.
    """
    top, bottom = numerator.astype(np.float64), denominator.astype(np.float64)
    total = bottom.sum()
    if total == 0:
        return Estimate(value=None)
    value = float(top.sum() / total)
    clusters = int((bottom > 0).sum())
    if clusters < 2:
        return Estimate(value=value)
    se = float(np.sqrt(((top - value * bottom) ** 2).sum() * clusters / (clusters - 1)) / total)
    return normal_estimate(value, se, lowest=lowest, highest=highest)
