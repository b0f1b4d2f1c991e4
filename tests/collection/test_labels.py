"""Which positions are observed: DESIGN's examples, and its sentences written out as loops."""

import itertools

import pytest

from dspark_calib.collection.labels import count_observed

EOS = "$"


def literal_labels(drafts: str, after: str, *, ended: bool) -> tuple[int, int]:
    """Accepted and observed of greedy drafts against the rest of a response, sentence by sentence."""
    gamma, m = len(drafts), len(after)
    accepted = 0
    while accepted < min(gamma, m) and drafts[accepted] == after[accepted]:
        accepted += 1
    observed = 0
    for k in range(1, gamma + 1):
        # everything is known unless a stop token before this position was accepted; a cut response hides the rest
        after_stop = 0 < accepted < k and after[accepted - 1] == EOS
        known = not after_stop if ended else k <= m
        observed += known
    return accepted, observed


@pytest.mark.parametrize(
    ("drafts", "after", "ended", "accepted", "observed"),
    [
        ("abxd", "abcde", False, 2, 4),
        ("a$uv", "a$", True, 2, 2),
        ("auvw", "a$", True, 1, 4),
        ("abcd", "ab", False, 2, 2),
        ("auvw", "ab", False, 1, 2),
    ],
)  # fmt: skip
def test_examples(drafts: str, after: str, ended: bool, accepted: int, observed: int) -> None:
    """The five examples of DESIGN, by the loops above and by the rule."""
    assert literal_labels(drafts, after, ended=ended) == (accepted, observed)
    assert count_observed([accepted], [len(after)], [4], [ended]).tolist() == [observed]


def test_rule_equals_the_sentences_everywhere() -> None:
    """All drafts of three positions against all short responses."""
    responses = ["".join(r) for n in (1, 2, 3, 4) for r in itertools.product("ab", repeat=n)]
    cases = [(r, False) for r in responses] + [(r + EOS, True) for r in ["", *responses]]
    for after, ended in cases:
        for drafts in itertools.product(f"ab{EOS}", repeat=3):
            accepted, observed = literal_labels("".join(drafts), after, ended=ended)
            assert count_observed([accepted], [len(after)], [3], [ended]).tolist() == [observed]


def test_a_draft_that_ended_early_is_observed_to_its_end_only() -> None:
    """With two drafts instead of four, positions 3 and 4 are never observed."""
    verified, left = [2, 2, 2, 0], [9, 9, 1, 9]
    assert count_observed([0, 2, 0, 0], left, verified, [True] * 4).tolist() == [2, 2, 2, 0]
    assert count_observed([0, 2, 0, 0], left, verified, [False] * 4).tolist() == [2, 2, 1, 0]
