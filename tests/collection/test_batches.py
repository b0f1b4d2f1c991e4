"""Cutting work into batches: every prompt once, in order, within the budget."""

from hypothesis import given
from hypothesis import strategies as st

from dspark_calib.collection.batches import cut_into_batches
from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.responses.response import join_response


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 200), st.integers(1, 30))
def test_batches_hold_every_prompt_once_within_the_budget(lengths: list[int], budget: int, new: int) -> None:
    """In order; padded tokens within the budget, one prompt alone aside; no batch could hold its successor's first."""
    prompts = [Prompt(dataset="d", prompt_id=str(i), domain=None, token_ids=(1,) * n) for i, n in enumerate(lengths)]
    batches = cut_into_batches(prompts, budget, max_new_tokens=new)
    assert [p for batch in batches for p in batch.prompts] == prompts
    assert [batch.index for batch in batches] == list(range(len(batches)))
    for i, batch in enumerate(batches):
        longest = max(len(p.token_ids) + new for p in batch.prompts)
        assert len(batch.prompts) == 1 or len(batch.prompts) * longest <= budget
        if i + 1 < len(batches):
            following = batches[i + 1].prompts[0]
            assert (len(batch.prompts) + 1) * max(longest, len(following.token_ids) + new) > budget


@given(st.integers(2, 30), st.booleans())
def test_halves_are_the_whole(count: int, recorded: bool) -> None:
    """Two halves hold the prompts and responses of the batch, in order, under its number."""
    prompts = [Prompt(dataset="d", prompt_id=str(i), domain=None, token_ids=(i,)) for i in range(count)]
    responses = [join_response(p, [7, 8], "length") for p in prompts]
    (batch,) = cut_into_batches(prompts, 10_000, max_new_tokens=3, responses=responses if recorded else None)
    first, second = batch.halves()
    assert first.prompts + second.prompts == batch.prompts
    assert len(first.prompts) <= len(second.prompts) <= len(first.prompts) + 1
    assert first.index == second.index == batch.index
    if recorded:
        assert (first.responses or ()) + (second.responses or ()) == batch.responses
