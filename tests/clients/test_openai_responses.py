"""The Responses API: what one replica has stored is found again."""

import openai
import pytest
from openai.types.responses import Response

from world import REPLICAS

# An answer then has exactly as many tokens as were allowed.
EXACT = {"ignore_eos": True}


def test_a_response_has_text_and_usage(client: openai.OpenAI) -> None:
    response = client.responses.create(
        model="tiny", input="Hello.", max_output_tokens=16, extra_body=EXACT
    )
    assert response.output_text
    assert response.usage is not None
    assert response.usage.output_tokens == 16


def test_a_streamed_response_comes_as_named_events(client: openai.OpenAI) -> None:
    events = list(
        client.responses.create(model="tiny", input="Hello.", max_output_tokens=16, stream=True)
    )
    types = [event.type for event in events]
    assert types[0] == "response.created"
    assert types[-1] in ("response.completed", "response.incomplete")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(events)))


def test_stored_responses_are_found_where_they_are(client: openai.OpenAI) -> None:
    """Only one of four replicas has each of these; luck would have to hold dozens of times."""
    stored = [
        client.responses.create(model="tiny", input=f"Hello {number}.", max_output_tokens=16)
        for number in range(12)
    ]
    for response in stored:
        for found in in_a_row(client, response.id):
            assert found.id == response.id
            assert found.output_text == response.output_text


def test_a_conversation_goes_on_where_it_began(client: openai.OpenAI) -> None:
    previous = client.responses.create(model="tiny", input="Begin.", max_output_tokens=16)
    for turn in range(12):
        following = client.responses.create(
            model="tiny",
            input=f"Turn {turn}.",
            previous_response_id=previous.id,
            max_output_tokens=16,
        )
        assert following.previous_response_id == previous.id
        previous = following


def test_a_streamed_response_is_stored_too(client: openai.OpenAI) -> None:
    ids = []
    for number in range(8):
        events = client.responses.create(
            model="tiny", input=f"Stream {number}.", max_output_tokens=16, stream=True
        )
        ids.append([event.response.id for event in events if event.type == "response.created"][0])
    for id in ids:
        assert [found.id for found in in_a_row(client, id)] == [id] * REPLICAS


def test_a_deleted_response_is_gone(client: openai.OpenAI) -> None:
    response = client.responses.create(model="tiny", input="Hello.", max_output_tokens=16)
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_a_response_that_never_was_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_nobody_ever_stored_this")


def in_a_row(client: openai.OpenAI, id: str) -> list[Response]:
    """Retrieves once for each replica, so that taking turns cannot be right by accident."""
    return [client.responses.retrieve(id) for _ in range(REPLICAS)]
