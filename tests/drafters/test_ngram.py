"""Prompt lookup: the usual rule, for every anchor at once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from dspark_calib.drafters.ngram import NgramDrafter, find_sources


def drafts_by_transformers(text: list[int], gamma: int, max_ngram: int) -> list[int]:
    """Prompt lookup as transformers does it for one text that ends at the anchor."""
    generator = PromptLookupCandidateGenerator(
        num_output_tokens=gamma, max_matching_ngram_size=max_ngram, max_length=len(text) + 100
    )
    candidates, _ = generator.get_candidates(torch.tensor([text]))
    return candidates[0, len(text) :].tolist()


def drafts_at(drafter: NgramDrafter, tokens: torch.Tensor, anchors: torch.Tensor) -> list[list[list[int]]]:
    """The drafts of every sequence and anchor, cut where the block ends."""
    block = drafter.encode(tokens, tokens.new_zeros(0)).draft(anchors)
    previous = tokens.gather(1, anchors)
    columns, offered = [], []
    for slot in range(drafter.gamma):
        step = block.step(slot, previous)
        assert step.drafted is not None
        previous = step.logits.argmax(-1)
        columns.append(previous)
        offered.append(step.drafted)
    chosen, known = torch.stack(columns, -1), torch.stack(offered, -1)
    return [[row[ok].tolist() for row, ok in zip(*pair, strict=True)] for pair in zip(chosen, known, strict=True)]


@settings(max_examples=60, deadline=None)
@given(
    text=st.lists(st.integers(0, 4), min_size=2, max_size=30),
    gamma=st.integers(1, 6),
    max_ngram=st.integers(1, 4),
)
def test_drafts_are_those_of_transformers_prompt_lookup(text: list[int], gamma: int, max_ngram: int) -> None:
    """At every anchor the drafts are the candidates transformers finds for the text up to there."""
    drafter = NgramDrafter(vocab_size=5, gamma=gamma, max_ngram=max_ngram)
    anchors = torch.arange(1, len(text))[None]
    found = drafts_at(drafter, torch.tensor([text]), anchors)[0]
    assert found == [drafts_by_transformers(text[: t + 1], gamma, max_ngram) for t in range(1, len(text))]


def test_a_worked_example() -> None:
    """The longest n-gram wins over a shorter one, then its earliest occurrence; a miss drafts nothing."""
    # index     0  1  2  3  4  5  6  7
    text = torch.tensor([[7, 1, 2, 9, 1, 8, 1, 2]])
    drafter = NgramDrafter(vocab_size=10, gamma=3, max_ngram=2)
    # t=7: "1 2" stood at 1-2, so 9 1 8 follows; t=4: "1" stood at 1, so 2 9 1; t=5: 8 is new, no draft
    assert drafts_at(drafter, text, torch.tensor([[7, 4, 5]])) == [[[9, 1, 8], [2, 9, 1], []]]


def test_a_draft_ends_where_the_known_text_ends() -> None:
    """The copy never reads past the anchor: "a b a" drafts "b a" and stops."""
    assert drafts_at(NgramDrafter(vocab_size=3, gamma=5), torch.tensor([[0, 1, 0]]), torch.tensor([[2]])) == [[[1, 0]]]


def test_min_ngram_asks_for_longer_matches() -> None:
    """With min_ngram = 2 a single repeated token is no match."""
    text = torch.tensor([[3, 1, 4, 1]])
    assert find_sources(text, 1, 2).tolist() == [[-1, -1, -1, 1]]
    assert find_sources(text, 2, 2).tolist() == [[-1, -1, -1, -1]]


def test_rows_and_padding_do_not_touch_each_other() -> None:
    """Sequences of a batch, padding on the right, `append` and `take` give what one sequence alone gives."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, 4, (3, 20), generator=generator)
    alone = torch.cat([find_sources(row[None], 1, 3) for row in tokens])
    assert torch.equal(find_sources(tokens, 1, 3), alone)
    assert torch.equal(find_sources(tokens[:, :12], 1, 3), alone[:, :12])
    drafter, nothing = NgramDrafter(vocab_size=4, gamma=3, max_ngram=3), tokens.new_zeros(0)
    context = drafter.encode(tokens[:, :9], nothing)
    context.append(tokens[:, 9:], nothing)
    rows, anchors = torch.tensor([2, 0]), torch.tensor([[19, 4], [18, 7]])
    kept = context.take(rows).draft(anchors).step(0, anchors)
    whole = drafter.encode(tokens[rows], nothing).draft(anchors).step(0, anchors)
    assert torch.equal(kept.logits, whole.logits)
    assert torch.equal(kept.drafted, whole.drafted)


@pytest.mark.parametrize("sizes", [{"gamma": 0}, {"min_ngram": 3, "max_ngram": 2}, {"min_ngram": 0}])
def test_senseless_sizes_are_refused(sizes: dict[str, int]) -> None:
    """γ below 1, or a shortest n-gram above the longest, is an error that names all three."""
    with pytest.raises(ValueError, match="min_ngram"):
        NgramDrafter(vocab_size=9, **sizes)
