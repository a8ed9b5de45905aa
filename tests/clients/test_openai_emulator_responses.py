"""Responses of the emulator, by the official SDK: directly, and through the node."""

import time
from typing import Any

import openai
import pytest

from asked import EXACT, RESPONSE_TOOLS, River, check_weather

PATIENCE_S = 30


def finished(sdk: openai.OpenAI, id: str) -> Any:
    """A response once nobody works on it any more."""
    due = time.monotonic() + PATIENCE_S
    while (response := sdk.responses.retrieve(id)).status in ("queued", "in_progress"):
        assert time.monotonic() < due, "it never ends"
        time.sleep(0.01)  # wait: until it is looked at again
    return response


def test_the_input_of_a_response_is_told(sdk: openai.OpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": text} for text in ("One.", "Two.", "Three.")]
    response = sdk.responses.create(model="tiny", input=items, max_output_tokens=4)
    listed = [item.content[0].text for item in sdk.responses.input_items.list(response.id)]
    assert listed == ["Three.", "Two.", "One."]
    first = sdk.responses.input_items.list(response.id, order="asc", limit=2)
    assert [item.content[0].text for item in first.data] == ["One.", "Two."]
    assert first.has_more
    sdk.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.input_items.list(response.id)


def test_a_response_in_the_background_is_there_in_the_end(sdk: openai.OpenAI) -> None:
    response = sdk.responses.create(model="tiny", input="Take your time.", background=True)
    assert response.status in ("queued", "in_progress")
    response = finished(sdk, response.id)
    assert response.status == "completed"
    assert response.output_text
    again = sdk.responses.create(
        model="tiny", input="Go on.", previous_response_id=response.id, max_output_tokens=4
    )
    assert again.previous_response_id == response.id


def test_the_stream_of_a_response_in_the_background_is_taken_up_again(
    sdk: openai.OpenAI,
) -> None:
    events = []
    with sdk.responses.create(
        model="tiny", input="Tell me more.", background=True, stream=True
    ) as stream:
        for event in stream:
            events.append(event)
            if len(events) == 6:
                break
    id = events[0].response.id
    rest = sdk.responses.retrieve(id, stream=True, starting_after=events[-1].sequence_number)
    events += list(rest)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert events[-1].type == "response.completed"
    assert text == events[-1].response.output_text == sdk.responses.retrieve(id).output_text


def test_a_response_in_the_background_is_called_off(sdk: openai.OpenAI) -> None:
    response = sdk.responses.create(
        model="tiny", input="Go on for ever.", background=True, max_output_tokens=20_000,
        extra_body=EXACT,
    )
    assert sdk.responses.cancel(response.id).status == "cancelled"
    assert sdk.responses.cancel(response.id).status == "cancelled"
    assert sdk.responses.retrieve(response.id).status == "cancelled"
    waited_for = sdk.responses.create(model="tiny", input="Hello.", max_output_tokens=2)
    with pytest.raises(openai.BadRequestError):
        sdk.responses.cancel(waited_for.id)


def test_a_response_calls_tools_and_takes_their_results(sdk: openai.OpenAI) -> None:
    ask: Any = {"model": "tiny", "tools": RESPONSE_TOOLS}
    response = sdk.responses.create(input="How is the weather in Bonn?", **ask)
    (call,) = response.output
    assert call.type == "function_call"
    assert call.name == "get_weather"
    check_weather(call.arguments)
    result: list[Any] = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    ]
    answer = sdk.responses.create(input=result, previous_response_id=response.id, **ask)
    assert answer.output_text
    with sdk.responses.stream(input="How is the weather in Bonn?", **ask) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()
    assert "response.function_call_arguments.delta" in kinds
    assert "response.function_call_arguments.done" in kinds
    assert final.output[0].type == "function_call"
    assert final.output[0].arguments == call.arguments


def test_a_response_fits_the_type_that_the_client_gives(sdk: openai.OpenAI) -> None:
    response = sdk.responses.parse(model="tiny", input="Name a river.", text_format=River)
    assert isinstance(response.output_parsed, River)
    with sdk.responses.stream(model="tiny", input="Name a river.", text_format=River) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == response.output_parsed


def test_a_response_tells_logprobs(sdk: openai.OpenAI) -> None:
    response = sdk.responses.create(
        model="tiny", input="Hello.", max_output_tokens=4, top_logprobs=2,
        include=["message.output_text.logprobs"],
    )
    message = response.output[0]
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert "".join(entry.token for entry in part.logprobs or []) == response.output_text


def test_the_input_tokens_of_a_response_are_counted(sdk: openai.OpenAI) -> None:
    ask: Any = {"model": "tiny", "input": "How long is this?", "tools": RESPONSE_TOOLS}
    counted = sdk.responses.input_tokens.count(**ask)
    response = sdk.responses.create(**ask)
    assert response.usage is not None
    assert counted.input_tokens == response.usage.input_tokens
