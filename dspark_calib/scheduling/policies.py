"""The policies by the names the command line uses."""

from typing import TYPE_CHECKING

from dspark_calib.errors import PolicyError
from dspark_calib.scheduling.curve import SpsCurve
from dspark_calib.scheduling.deepinfer import DeepInferVarlen
from dspark_calib.scheduling.deepinfer_cost import StepCost
from dspark_calib.scheduling.early_stop import EarlyStop
from dspark_calib.scheduling.fixed import FixedLength
from dspark_calib.scheduling.policy import Policy
from dspark_calib.scheduling.search import UnconstrainedSearch
from dspark_calib.scheduling.threshold import ConfidenceThreshold, SurvivalThreshold

if TYPE_CHECKING:
    from collections.abc import Callable

POLICY_FORMS = ("fixed", "fixed:LENGTH", "threshold:C", "survival:A", "algorithm1", "search", "deepinfer")
DEFAULT_POLICIES = ("fixed", "algorithm1", "search", "deepinfer")


def parse_policy(text: str, curve: SpsCurve, gamma: int) -> Policy:
    """Return the policy of a name such as `fixed:3` or `threshold:0.6`.

    Args:
        text: One of `POLICY_FORMS`; C is a bound on c_k, A one on a_k, both in [0, 1].
        curve: For the policies that carry one.
        gamma: Drafts in a block; a fixed length may not exceed it.

    Raises:
        PolicyError: If there is no such policy, or its number is missing or out of range.
    """
    name, colon, number = text.partition(":")
    plain: dict[str, Callable[[], Policy]] = {
        "fixed": FixedLength,
        "algorithm1": EarlyStop,
        "search": UnconstrainedSearch,
        "deepinfer": lambda: DeepInferVarlen(curve=curve, cost=StepCost()),
    }
    numbered: dict[str, Callable[[], Policy]] = {
        "fixed": lambda: FixedLength(length=_length(text, number, gamma)),
        "threshold": lambda: ConfidenceThreshold(threshold=_probability(text, number)),
        "survival": lambda: SurvivalThreshold(threshold=_probability(text, number)),
    }
    make = (numbered if colon else plain).get(name)
    if make is None:
        raise PolicyError(f"{text}: no such policy; expected one of {', '.join(POLICY_FORMS)}")
    return make()


def _length(text: str, number: str, gamma: int) -> int:
    if not number.isdecimal() or int(number) > gamma:
        raise PolicyError(f"{text}: the length must be a whole number in 0..{gamma}, the trace's block")
    return int(number)


def _probability(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise PolicyError(f"{text}: the threshold must be a number in [0, 1]")
    return value


def check_replayable(policy: Policy, gamma: int, *, every_anchor: bool, trace: str) -> None:
    """Refuse a policy that shortens verification on a trace that holds only loop anchors.

    Raises:
        PolicyError: With the reason and what to collect.
    """
    verifies_all = isinstance(policy, FixedLength) and (policy.length is None or policy.length >= gamma)
    if not every_anchor and not verifies_all:
        raise PolicyError(
            f"{trace} holds only the anchors of a loop that verified every draft, and {policy.name} verifies fewer: "
            "the rounds it would visit next are not there. Collect with --anchors all"
        )
