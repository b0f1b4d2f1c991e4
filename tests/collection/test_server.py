"""Responses from a server on the loopback device that answers, stumbles, lies or is silent."""

import time
from typing import Any

import pytest
from disk_pair import STOP, tokenizer
from loopback_server import Answer, completion, serving

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.responses.generation import Sampling
from dspark_calib.collection.responses.server import ServedResponses, ServerAddress
from dspark_calib.errors import ResponseError


def respond(url: str, prompts: int = 1, **address: float) -> list[Any]:
    """Ask for responses with quick retries."""
    sampling = Sampling(temperature=0.7, max_new_tokens=8, stop_token_ids=(STOP,), seed=1)
    server = ServerAddress(url=url, model="m", **{"pause": 0.01, "attempts": 3, **address})  # type: ignore[arg-type]
    asked = [Prompt(dataset="d", prompt_id=str(i), domain=None, token_ids=(i + 1, 2)) for i in range(prompts)]
    return ServedResponses(sampling=sampling, server=server, tokenizer=tokenizer()).respond(
        None, asked, lambda _share: None
    )


def test_token_ids_are_taken_as_they_are() -> None:
    """Prompts go out as token ids with neutral sampling; token ids come back in the order of the prompts."""
    with serving(lambda request, _: completion("?", token_ids=[*request["prompt"], 7])) as (url, asked):
        responses = respond(url, prompts=20)
    assert [r.token_ids for r in responses] == [(i + 1, 2, i + 1, 2, 7) for i in range(20)]
    assert {r.ending for r in responses} == {"length"}
    request = asked[0]
    assert request["path"] == "/v1/completions"
    neutral = {"temperature": 0.7, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "max_tokens": 8,
               "presence_penalty": 0.0, "frequency_penalty": 0.0}  # fmt: skip
    assert {key: request[key] for key in neutral} == neutral
    assert len({r["seed"] for r in asked}) == 20


def test_text_is_tokenised_again() -> None:
    """Without token ids the text is tokenised; the stop token that servers leave out is put back."""
    with serving(lambda _request, _: completion("hé!", "stop")) as (url, _asked):
        (response,) = respond(url + "/v1/")
    written = response.token_ids[response.prompt_length :]
    assert tokenizer().decode(written[:-1]) == "hé!"
    assert written[-1] == STOP
    assert response.ending == "eos"


def test_another_reason_to_stop_is_an_unknown_ending() -> None:
    """Neither a stop token nor the length limit: nobody knows how it would have gone on."""
    with serving(lambda _request, _: completion(reason="abort", token_ids=[3])) as (url, _asked):
        assert respond(url)[0].ending == "unknown"


def test_text_that_does_not_round_trip_is_refused() -> None:
    """A tokenizer that writes a text otherwise than the server did shows where."""
    lossy = tokenizer()
    lossy.backend_tokenizer.decoder = None  # spaces and accents stay in their byte-level disguise
    sampling = Sampling(temperature=0.7, max_new_tokens=8, stop_token_ids=(STOP,), seed=1)
    prompt = Prompt(dataset="d", prompt_id="p", domain=None, token_ids=(1,))
    with serving(lambda _request, _: completion("ab c")) as (url, _asked):
        source = ServedResponses(sampling=sampling, server=ServerAddress(url=url, model="m"), tokenizer=lossy)
        with pytest.raises(ResponseError, match=r"prompt d/p: the text does not survive .*character \d+"):
            source.respond(None, [prompt], lambda _share: None)


def test_a_passing_failure_is_tried_again() -> None:
    """Two 500s, then an answer."""
    with serving(lambda _request, n: (500, "busy") if n < 3 else completion(token_ids=[3])) as (url, asked):
        assert respond(url)[0].token_ids == (1, 2, 3)
        assert len(asked) == 3


@pytest.mark.parametrize(
    ("answer", "requests", "said"),
    [
        ((500, "out of order"), 3, "status 500: out of order"),
        ((400, "top_k must be positive"), 1, "status 400: top_k must be positive"),
        ((200, "no json"), 1, "the answer is no completion"),
        ((200, {"choices": []}), 1, "the answer is no completion"),
        (completion(token_ids=["x"]), 1, "holds something that is no token id"),
        (completion(""), 1, "an empty response"),
    ],
)
def test_a_lasting_failure_names_server_and_prompt(answer: Answer, requests: int, said: str) -> None:
    """Retries are bounded, a refusal is not retried, and the message shows what the server said."""
    with serving(lambda _request, _: answer) as (url, asked):
        with pytest.raises(ResponseError) as caught:
            respond(url)
        assert len(asked) == requests
    assert f"{url}/v1/completions, prompt d/0: " in str(caught.value)
    assert said in str(caught.value)


def test_a_silent_or_absent_server_is_given_up_on() -> None:
    """A timeout and a closed port end in an error within attempts × timeout."""

    def sleep(_request: dict[str, Any], _: int) -> Answer:
        time.sleep(0.5)
        return completion(token_ids=[3])

    with serving(sleep) as (url, _asked), pytest.raises(ResponseError, match=r"no answer within 0\.1 s"):
        respond(url, timeout=0.1, attempts=2)
    with pytest.raises(ResponseError, match="prompt d/0"):
        respond(url, attempts=2)


def test_one_failure_does_not_wait_for_the_others() -> None:
    """A refusal ends the batch at once, however long the other responses would take."""

    def refuse_the_first(request: dict[str, Any], _: int) -> Answer:
        if request["prompt"][0] == 1:
            return 400, "no such model"
        time.sleep(3)
        return completion(token_ids=[3])

    with serving(refuse_the_first) as (url, _asked):
        start = time.monotonic()
        with pytest.raises(ResponseError, match="no such model"):
            respond(url, prompts=5)
        assert time.monotonic() - start < 2.5
