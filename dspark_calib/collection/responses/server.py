"""Responses from an OpenAI-compatible completions server (vLLM, SGLang, …) that runs the target."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any

from dspark_calib.collection.chat_template import Prompt
from dspark_calib.collection.job import Tick
from dspark_calib.collection.law import is_greedy
from dspark_calib.collection.responses.generation import Sampling
from dspark_calib.collection.responses.response import cut_at_stop, join_response
from dspark_calib.collection.sequences import ResponseSequence
from dspark_calib.collection.uniforms import keyed_generator
from dspark_calib.errors import MissingExtra, ResponseError

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where a server is and how long to wait for it.

    Attributes:
        url: Base address, such as http://localhost:8000 or http://localhost:8000/v1.
        model: Name the server knows the target by.
        timeout: Seconds for one response.
        attempts: Requests sent for one response before giving up.
        pause: Seconds before the second attempt; doubled before each further one.
        in_flight: Requests at a time.
    """

    url: str
    model: str
    timeout: float = 600.0
    attempts: int = 4
    pause: float = 1.0
    in_flight: int = 64

    @property
    def endpoint(self) -> str:
        """The address of the completions endpoint."""
        base = self.url.rstrip("/")
        return f"{base if base.endswith('/v1') else f'{base}/v1'}/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedResponses:
    """A server writes the responses; whether it is the target is checked by the target here.

    Attributes:
        sampling: How it is asked to write.
        server: Where it is.
        tokenizer: The target's, for servers that answer with text only.
    """

    sampling: Sampling
    server: ServerAddress
    tokenizer: Any

    @property
    def is_the_target(self) -> bool:
        """Nobody knows what a server runs."""
        return False

    def respond(self, model: Any, prompts: Sequence[Prompt], tick: Tick) -> list[ResponseSequence]:  # noqa: ARG002
        """Return one response a prompt, in order.

        Raises:
            ResponseError: If the server cannot be reached, refuses, or answers with something that is no response.
            MissingExtra: If httpx is not installed.
        """
        try:
            import httpx
        except ImportError as error:
            raise MissingExtra("httpx", "collect", "--responses-from") from error
        answered, lock = 0, Lock()

        def ask(prompt: Prompt) -> ResponseSequence:
            nonlocal answered
            response = self._ask(httpx, client, prompt)
            with lock:
                answered += 1
                tick(answered / len(prompts))
            return response

        pool = ThreadPoolExecutor(self.server.in_flight)
        try:
            with httpx.Client(timeout=self.server.timeout) as client:
                return list(pool.map(ask, prompts))
        finally:  # nobody waits for the other requests once one has failed, or after Ctrl-C
            pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, httpx: Any, client: Any, prompt: Prompt) -> ResponseSequence:
        """Send one request, again after a pause where the failure may pass."""
        failure = ""
        for attempt in range(self.server.attempts):
            if attempt:
                time.sleep(self.server.pause * 2 ** (attempt - 1))
            try:
                answer = client.post(self.server.endpoint, json=self._request(prompt))
            except httpx.TimeoutException:
                failure = f"no answer within {self.server.timeout:g} s"
            except httpx.HTTPError as error:
                failure = str(error) or type(error).__name__
            else:
                if answer.status_code == 200:
                    return self._read(answer, prompt)
                failure = f"status {answer.status_code}: {answer.text.strip()[:200]}"
                if answer.status_code not in _RETRIED:
                    break
        raise ResponseError(
            f"{self.server.endpoint}, prompt {prompt.name}: {failure}; finished parts are kept, go on with --resume"
        )

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        """Ask for plain sampling from softmax(logits/τ): a server may have other defaults of its own."""
        key = keyed_generator(self.sampling.seed, "server", prompt.dataset, prompt.prompt_id)
        return {
            "model": self.server.model,
            "prompt": list(prompt.token_ids),
            "max_tokens": self.sampling.max_new_tokens,
            "temperature": 0.0 if is_greedy(self.sampling.temperature) else self.sampling.temperature,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "seed": int(key.integers(2**31)),
            "stop_token_ids": list(self.sampling.stop_token_ids),
            "skip_special_tokens": False,
            "return_token_ids": True,
        }

    def _read(self, answer: Any, prompt: Prompt) -> ResponseSequence:
        where = f"{self.server.endpoint}, prompt {prompt.name}"
        try:
            choice = answer.json()["choices"][0]
            text, reason = choice["text"], choice.get("finish_reason")
        except (ValueError, LookupError, TypeError) as error:
            raise ResponseError(f"{where}: the answer is no completion ({answer.text.strip()[:200]!r})") from error
        tokens = choice.get("token_ids")
        if tokens is None:
            tokens = self._retokenize(text, where)
        elif not all(type(token) is int and token >= 0 for token in tokens):
            raise ResponseError(f"{where}: `token_ids` holds something that is no token id")
        return self._end(prompt, list(tokens), reason, where)

    def _retokenize(self, text: str, where: str) -> list[int]:
        """Return the tokens of a text, provided they say exactly this text again."""
        tokens: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        again = self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if again != text:
            raise ResponseError(
                f"{where}: the text does not survive the target's tokenizer ({_first_difference(text, again)}); "
                "use a server that returns token ids, or check that it runs this target"
            )
        return tokens

    def _end(self, prompt: Prompt, tokens: list[int], reason: object, where: str) -> ResponseSequence:
        """Put back the stop token that servers leave out, and end the response."""
        stops = self.sampling.stop_token_ids
        if reason == "stop" and stops and not (tokens and tokens[-1] in stops):
            tokens.append(stops[0])
        if not tokens:
            raise ResponseError(f"{where}: an empty response; check the server's log for this request")
        ended = cut_at_stop(prompt, tokens, stops)
        if ended.ending != "eos" and reason != "length":
            return join_response(prompt, tokens, "unknown")
        return ended


def _first_difference(sent: str, again: str) -> str:
    index = next((i for i, (a, b) in enumerate(zip(sent, again, strict=False)) if a != b), min(len(sent), len(again)))
    return f"character {index}: {sent[index : index + 20]!r} becomes {again[index : index + 20]!r}"
