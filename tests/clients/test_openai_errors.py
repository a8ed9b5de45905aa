"""Each kind of trouble reaches the SDK as the exception that its users catch."""

import time
from typing import Any

import httpx2
import openai
import pytest

from world import BODY_BYTES_MAX, FAULTY, IDLE_MS, World, metrics

PROMPT = [{"role": "user", "content": "Hello."}]

over_both_protocols = pytest.mark.parametrize("model", FAULTY)


def collect(client: openai.OpenAI, model: str, pieces: list[str]) -> None:
    """Adds what a streamed chat says, as far as it comes."""
    for chunk in client.chat.completions.create(
        model=model, messages=PROMPT, max_tokens=50, stream=True
    ):
        pieces += [choice.delta.content for choice in chunk.choices if choice.delta.content]


def test_an_unknown_model_is_not_found_and_the_known_ones_are_named(
    client: openai.OpenAI,
) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="huge", messages=PROMPT)
    error = caught.value
    assert error.code == "model_not_found"
    assert error.type == "invalid_request_error"
    assert error.param == "model"
    assert "huge" in error.message
    assert "tiny" in error.message
    assert error.response.headers["x-spillway-code"] == "model_not_found"


@pytest.mark.parametrize("body", [b'{"model": "tiny", ', b"", b"[]", b'{"model": 7}', b"\xff{}"])
def test_a_malformed_body_is_a_bad_request(client: openai.OpenAI, body: bytes) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post(
            "/chat/completions",
            cast_to=object,
            content=body,
            options={"headers": {"content-type": "application/json"}},
        )
    assert caught.value.code == "bad_request"
    assert caught.value.type == "invalid_request_error"


def test_a_missing_model_is_a_bad_request_that_says_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/chat/completions", cast_to=object, body={"messages": PROMPT})
    assert caught.value.param == "model"


def test_a_body_above_the_limit_is_too_large(client: openai.OpenAI) -> None:
    content = "x" * (BODY_BYTES_MAX + 1)
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": content}]
        )
    assert caught.value.status_code == 413
    assert caught.value.code == "body_too_large"


@over_both_protocols
def test_an_error_of_the_replica_is_passed_on(
    client: openai.OpenAI, faulty: World, model: str
) -> None:
    faulty.set_fault({"kind": "status", "code": 429, "retry_after_s": 1})
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model=model, messages=PROMPT)
    assert caught.value.response.headers["retry-after"] == "1"
    assert "x-spillway-code" not in caught.value.response.headers
    # The node takes it at its word for this client; the next test begins when that is over.
    assert faulty.is_kept_away(model)
    assert 'admission="busy"' not in metrics(faulty.admin)


@pytest.mark.one_node("without a queue a retry at another node may come before that node hears of the end")
@over_both_protocols
def test_who_comes_again_when_the_replica_said_so_is_served(faulty: World, model: str) -> None:
    faulty.set_fault({"kind": "status", "code": 429, "retry_after_s": 1})

    def heal(_: Any) -> None:
        faulty.set_fault({"kind": "none"})

    with httpx2.Client(event_hooks={"response": [heal]}) as http:
        client = openai.OpenAI(
            base_url=f"{faulty.url}/v1", api_key="unused", max_retries=1, timeout=20, http_client=http
        )
        raw = client.chat.completions.with_raw_response.create(
            model=model, messages=PROMPT, max_tokens=1
        )
    assert raw.retries_taken == 1
    assert raw.parse().choices


def test_a_refusal_of_the_replica_is_passed_on(client: openai.OpenAI) -> None:
    """The emulator knows no such temperature; the node has no opinion about that."""
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=PROMPT, temperature=3)
    assert caught.value.param == "temperature"
    assert "x-spillway-code" not in caught.value.response.headers


@over_both_protocols
def test_a_replica_that_hangs_is_a_timeout(
    client: openai.OpenAI, faulty: World, model: str
) -> None:
    faulty.set_fault({"kind": "hang"})
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=1).chat.completions.create(model=model, messages=PROMPT)


@over_both_protocols
@pytest.mark.parametrize("kind", ["crash", "garbage"])
def test_a_broken_replica_is_a_gateway_error(
    client: openai.OpenAI, faulty: World, kind: str, model: str
) -> None:
    faulty.set_fault({"kind": kind})
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model=model, messages=PROMPT)
    assert caught.value.status_code in (502, 503)
    assert caught.value.response.headers["x-spillway-code"] == caught.value.code


@over_both_protocols
def test_a_stream_that_stalls_ends_with_an_error(
    client: openai.OpenAI, faulty: World, model: str
) -> None:
    faulty.set_fault({"kind": "stall", "after_events": 4})
    pieces: list[str] = []
    started = time.monotonic()
    with pytest.raises(openai.APIError) as caught:
        collect(client, model, pieces)
    assert caught.value.code == "stream_stalled"
    assert pieces, "what came before the stall was delivered"
    assert IDLE_MS / 1000 <= time.monotonic() - started < IDLE_MS / 1000 + 5


@over_both_protocols
@pytest.mark.parametrize("close", ["reset", "fin"])
def test_a_stream_that_is_cut_ends_with_an_error(
    client: openai.OpenAI, faulty: World, close: str, model: str
) -> None:
    faulty.set_fault({"kind": "cut", "after_events": 4, "close": close})
    pieces: list[str] = []
    with pytest.raises(openai.APIError) as caught:
        collect(client, model, pieces)
    assert caught.value.code == "stream_cut"
    assert pieces, "what came before the cut was delivered"


@over_both_protocols
@pytest.mark.parametrize("close", ["reset", "fin"])
def test_a_whole_answer_that_is_cut_is_no_answer(
    client: openai.OpenAI, faulty: World, close: str, model: str
) -> None:
    faulty.set_fault({"kind": "cut", "after_events": 0, "close": close})
    with pytest.raises((openai.APIConnectionError, openai.InternalServerError)):
        client.chat.completions.create(model=model, messages=PROMPT, max_tokens=50)


@over_both_protocols
def test_a_cut_response_stream_ends_with_its_error_event(
    client: openai.OpenAI, faulty: World, model: str
) -> None:
    faulty.set_fault({"kind": "cut", "after_events": 5})
    events = list(client.responses.create(model=model, input="Hello.", stream=True))
    assert events[-1].type == "error"
    assert events[-1].code == "stream_cut"
    assert events[-1].sequence_number == events[-2].sequence_number + 1


@over_both_protocols
def test_a_healed_replica_serves_again(client: openai.OpenAI, faulty: World, model: str) -> None:
    faulty.set_fault({"kind": "crash"})
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model=model, messages=PROMPT)
    faulty.set_fault({"kind": "none"})
    pieces: list[str] = []
    collect(client, model, pieces)
    assert pieces
