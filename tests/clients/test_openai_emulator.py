"""What an engine can do, asked of the emulator by the official SDK: directly, and through the node.

Each test runs both ways, so that the node must say what the emulator says.
"""

import base64
import json
from collections import defaultdict
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageToolCall

from asked import EXACT, HELLO, TOOLS, WEATHER_ASKED, Forecast, River, check_weather
from world import World


def texts_of(stream: Any) -> dict[int, str]:
    """What each choice of a streamed chat says."""
    texts: dict[int, str] = defaultdict(str)
    for chunk in stream:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    return dict(texts)


@pytest.mark.parametrize(
    "options",
    [
        {"n": 2},
        {"tools": TOOLS},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True, "top_logprobs": 2, "max_tokens": 5},
    ],
    ids=str,
)
def test_the_node_says_word_for_word_what_the_emulator_says(
    world: World, client: openai.OpenAI, options: dict[str, Any]
) -> None:
    direct = client.with_options(base_url=f"http://127.0.0.1:{world.tiny}/v1")

    def said(sdk: openai.OpenAI) -> list[dict[str, Any]]:
        reply = sdk.chat.completions.create(model="tiny", messages=HELLO, seed=5, **options)
        choices = [choice.to_dict() for choice in reply.choices]
        for choice in choices:
            for call in choice["message"].get("tool_calls", []):
                del call["id"]  # differs between any two requests
        return choices

    assert said(client) == said(direct)


# --- several answers, ends, usage ---


def test_several_answers_to_one_prompt_differ_and_count_together(sdk: openai.OpenAI) -> None:
    whole = sdk.chat.completions.create(
        model="tiny", messages=HELLO, n=3, max_tokens=9, extra_body=EXACT
    )
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in whole.choices]
    assert len(set(texts)) == 3
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 27
    one = sdk.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=9, extra_body=EXACT
    )
    assert one.usage is not None
    assert whole.usage.prompt_tokens == one.usage.prompt_tokens
    assert one.choices[0].message.content == texts[0]

    stream = sdk.chat.completions.create(
        model="tiny", messages=HELLO, n=3, max_tokens=9, stream=True, extra_body=EXACT
    )
    chunks = list(stream)
    assert texts_of(chunks) == dict(enumerate(texts))
    order = [choice.index for chunk in chunks for choice in chunk.choices]
    assert order != sorted(order), "the answers come side by side"


def test_a_stop_sequence_ends_the_text_before_it(sdk: openai.OpenAI) -> None:
    ask = {"model": "tiny", "messages": HELLO, "max_tokens": 40, "extra_body": EXACT}
    whole = sdk.chat.completions.create(**ask).choices[0].message.content
    assert whole is not None
    stop = whole[30:36]
    for stops in (stop, ["never said", stop]):
        stopped = sdk.chat.completions.create(**ask, stop=stops).choices[0]
        assert stopped.message.content == whole[: whole.index(stop)]
        assert stopped.finish_reason == "stop"
    stream = sdk.chat.completions.create(**ask, stop=stop, stream=True)
    assert texts_of(stream) == {0: whole[: whole.index(stop)]}


def test_seeds_and_limits_are_kept(sdk: openai.OpenAI) -> None:
    def ask(**options: Any) -> Any:
        reply = sdk.chat.completions.create(model="tiny", messages=HELLO, **options)
        return reply.choices[0]

    assert ask(seed=1).message.content == ask(seed=1).message.content
    assert ask(seed=1).message.content != ask(seed=2).message.content
    assert ask(max_completion_tokens=3).finish_reason == "length"
    assert len(ask(max_tokens=3).message.content) == 12
    assert ask().finish_reason == "stop"


@pytest.mark.one_node("nodes do not tell each other of prompts as short as this one")
def test_usage_tells_what_was_cached(sdk: openai.OpenAI) -> None:
    # Of this test alone, so that nothing is cached before.
    text = f"{sdk.base_url} asks again and again. " * 8
    ask = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 2}
    first = sdk.chat.completions.create(**ask)
    stream = sdk.chat.completions.create(
        **ask, stream=True, stream_options={"include_usage": True}
    )
    usage = [chunk.usage for chunk in stream if chunk.usage][-1]
    assert first.usage is not None
    assert usage.prompt_tokens == first.usage.prompt_tokens
    assert usage.prompt_tokens_details is not None
    cached = usage.prompt_tokens_details.cached_tokens or 0
    assert cached % 16 == 0
    assert usage.prompt_tokens - 16 <= cached < usage.prompt_tokens


# --- tools ---


@pytest.mark.one_node("nodes do not tell each other of prompts as short as this one")
def test_a_tool_is_called_and_its_result_answered(sdk: openai.OpenAI) -> None:
    reply = sdk.chat.completions.create(model="tiny", messages=WEATHER_ASKED, tools=TOOLS)
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert isinstance(call, ChatCompletionMessageToolCall)
    assert call.function.name == "get_weather"
    check_weather(call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    messages: list[Any] = [*WEATHER_ASKED, choice.message, result]
    answer = sdk.chat.completions.create(model="tiny", messages=messages, tools=TOOLS)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content
    # The call is found in the cache as it was made.
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert reply.usage is not None
    cached = answer.usage.prompt_tokens_details.cached_tokens or 0
    assert cached >= reply.usage.total_tokens - 16


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        ("auto", "tool_calls"),
        ("required", "tool_calls"),
        # As OpenAI and vLLM have it.
        ({"type": "function", "function": {"name": "get_weather"}}, "stop"),
        ("none", "stop"),
    ],
)
def test_the_client_chooses_the_tool(sdk: openai.OpenAI, choice: Any, reason: str) -> None:
    reply = sdk.chat.completions.create(
        model="tiny", messages=WEATHER_ASKED, tools=TOOLS, tool_choice=choice
    )
    assert reply.choices[0].finish_reason == reason
    calls = reply.choices[0].message.tool_calls or []
    names = [call.function.name for call in calls if call.type == "function"]
    assert names == ([] if choice == "none" else ["get_weather"])


def test_several_tools_are_called_if_the_client_can_take_that(sdk: openai.OpenAI) -> None:
    options: Any = {"tools": TOOLS, "parallel_tool_calls": True}
    whole = sdk.chat.completions.create(model="tiny", messages=WEATHER_ASKED, **options)
    calls = whole.choices[0].message.tool_calls or []
    assert len(calls) == 2
    assert len({call.id for call in calls}) == 2
    streamed: dict[int, dict[str, str]] = defaultdict(lambda: defaultdict(str))
    for chunk in sdk.chat.completions.create(
        model="tiny", messages=WEATHER_ASKED, stream=True, **options
    ):
        for delta in chunk.choices[0].delta.tool_calls or []:
            assert delta.function is not None
            streamed[delta.index]["name"] += delta.function.name or ""
            streamed[delta.index]["arguments"] += delta.function.arguments or ""
    for index, call in enumerate(calls):
        assert call.type == "function"
        assert streamed[index]["name"] == call.function.name
        assert streamed[index]["arguments"] == call.function.arguments


def test_the_stream_helper_parses_the_arguments_of_a_tool(sdk: openai.OpenAI) -> None:
    tools = [openai.pydantic_function_tool(Forecast)]
    with sdk.chat.completions.stream(
        model="tiny", messages=WEATHER_ASKED, tools=tools
    ) as stream:
        kinds = {event.type for event in stream}
        message = stream.get_final_completion().choices[0].message
    assert "tool_calls.function.arguments.delta" in kinds
    assert "tool_calls.function.arguments.done" in kinds
    assert message.tool_calls is not None
    assert isinstance(message.tool_calls[0].function.parsed_arguments, Forecast)


# --- logprobs and forms ---


def test_logprobs_are_told_token_by_token(sdk: openai.OpenAI) -> None:
    ask: Any = {
        "model": "tiny", "messages": HELLO, "max_tokens": 6, "logprobs": True,
        "top_logprobs": 3, "extra_body": EXACT,
    }
    choice = sdk.chat.completions.create(**ask).choices[0]
    assert choice.logprobs is not None
    tokens = choice.logprobs.content or []
    assert "".join(token.token for token in tokens) == choice.message.content
    for token in tokens:
        assert token.logprob < 0
        assert bytes(token.bytes or []).decode() == token.token
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].token == token.token
    streamed = [
        token
        for chunk in sdk.chat.completions.create(**ask, stream=True)
        for choice in chunk.choices
        for token in (choice.logprobs and choice.logprobs.content) or []
    ]
    assert streamed == tokens


def test_json_is_json(sdk: openai.OpenAI) -> None:
    reply = sdk.chat.completions.create(
        model="tiny", messages=HELLO, response_format={"type": "json_object"}
    )
    assert isinstance(json.loads(reply.choices[0].message.content or ""), dict)
    assert reply.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("seed", range(8))
def test_an_answer_fits_the_type_that_the_client_gives(sdk: openai.OpenAI, seed: int) -> None:
    ask: Any = {"model": "tiny", "messages": HELLO, "seed": seed, "response_format": River}
    reply = sdk.chat.completions.parse(**ask)
    river = reply.choices[0].message.parsed
    assert isinstance(river, River)
    with sdk.chat.completions.stream(**ask) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.parsed == river


def test_json_that_is_cut_is_told_as_cut(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        sdk.chat.completions.parse(
            model="tiny", messages=HELLO, response_format=River, max_tokens=4
        )


# --- text completions ---


def test_several_prompts_have_answers_of_their_own(sdk: openai.OpenAI) -> None:
    ask: Any = {"model": "tiny", "max_tokens": 5, "extra_body": EXACT}
    alone = [
        sdk.completions.create(prompt=prompt, **ask).choices[0].text for prompt in ("One", "Two")
    ]
    both = sdk.completions.create(prompt=["One", "Two"], **ask)
    assert [choice.text for choice in both.choices] == alone
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.usage is not None
    assert both.usage.completion_tokens == 10
    tokens = sdk.completions.create(prompt=[[1, 2, 3], [4, 5, 6, 7]], n=2, **ask)
    assert [choice.index for choice in tokens.choices] == [0, 1, 2, 3]
    assert tokens.usage is not None
    assert tokens.usage.prompt_tokens == 7
    streamed: dict[int, str] = defaultdict(str)
    for chunk in sdk.completions.create(prompt=["One", "Two"], stream=True, **ask):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == dict(enumerate(alone))


def test_the_prompt_is_told_again_with_logprobs(sdk: openai.OpenAI) -> None:
    ask: Any = {"model": "tiny", "prompt": "Once upon a time", "echo": True, "logprobs": 2}
    choice = sdk.completions.create(max_tokens=5, extra_body=EXACT, **ask).choices[0]
    assert choice.text.startswith("Once upon a time")
    lists = choice.logprobs
    assert lists is not None
    assert lists.tokens is not None
    assert "".join(lists.tokens) == choice.text
    assert len(lists.tokens) == 4 + 5
    assert lists.token_logprobs is not None
    assert lists.token_logprobs[0] is None
    assert lists.text_offset == [4 * place for place in range(9)]
    # Only what the prompt itself is worth, as evaluations ask for it.
    scored = sdk.completions.create(max_tokens=0, **ask)
    assert scored.choices[0].text == "Once upon a time"


def test_the_best_of_several_and_a_text_between_two(sdk: openai.OpenAI) -> None:
    ask: Any = {"model": "tiny", "prompt": "Once", "max_tokens": 5, "extra_body": EXACT}
    best = sdk.completions.create(n=1, best_of=4, **ask)
    all_of_them = {choice.text for choice in sdk.completions.create(n=4, **ask).choices}
    assert len(best.choices) == 1
    assert best.choices[0].text in all_of_them
    assert best.usage is not None
    assert best.usage.completion_tokens == 20
    between = sdk.completions.create(suffix=" the end", **ask)
    assert between.choices[0].text != sdk.completions.create(**ask).choices[0].text


# --- images, sounds, embeddings ---


def test_images_and_sounds_do_not_count_as_their_text(sdk: openai.OpenAI) -> None:
    data = base64.b64encode(bytes(150_000)).decode()
    parts: list[Any] = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
    ]
    reply = sdk.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": parts}], max_tokens=2
    )
    assert reply.usage is not None
    assert 500 < reply.usage.prompt_tokens < 1000


def test_embeddings_are_the_same_in_both_encodings(sdk: openai.OpenAI) -> None:
    ask: Any = {"model": "tiny", "dimensions": 64}
    texts = ["river", "stream"]
    numbers = sdk.embeddings.create(input=texts, encoding_format="float", **ask)
    packed = sdk.embeddings.create(input=texts, encoding_format="base64", **ask)
    assert len(numbers.data[0].embedding) == 64
    for number, text in zip(numbers.data, packed.data, strict=True):
        # Told to leave it as it is, the SDK does not decode it.
        raw = base64.b64decode(str(text.embedding))
        assert len(raw) == 64 * 4
        decoded = memoryview(raw).cast("f").tolist()
        assert decoded == pytest.approx(number.embedding, abs=1e-6)
    tokens = sdk.embeddings.create(input=[[1, 2, 3], [4, 5]], **ask)
    assert tokens.usage.prompt_tokens == 5


# --- what vLLM has beside ---


def test_a_text_comes_back_out_of_its_tokens(sdk: openai.OpenAI) -> None:
    root = str(sdk.base_url).removesuffix("/v1/")
    text = "größer als vier"
    tokens: Any = sdk.post(
        f"{root}/tokenize", cast_to=object, body={"model": "tiny", "prompt": text}
    )
    assert tokens["count"] == len(tokens["tokens"]) == (len(text.encode()) + 3) // 4
    body = {"model": "tiny", "tokens": tokens["tokens"]}
    back: Any = sdk.post(f"{root}/detokenize", cast_to=object, body=body)
    assert back["prompt"] == text
    chat: Any = sdk.post(
        f"{root}/tokenize", cast_to=object, body={"model": "tiny", "messages": HELLO}
    )
    reply = sdk.chat.completions.create(model="tiny", messages=HELLO, max_tokens=1)
    assert reply.usage is not None
    assert chat["count"] == reply.usage.prompt_tokens


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"temperature": 3},
        {"top_p": 2},
        {"n": 0},
        {"n": 2, "temperature": 0},
        {"max_tokens": 0},
        {"max_completion_tokens": 1_000_000},
        {"presence_penalty": 5},
        {"top_logprobs": 3},
        {"logprobs": True, "top_logprobs": 50},
        {"stop": [""]},
        {"tool_choice": "required"},
        {"response_format": {"type": "poem"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
        {"messages": []},
        {"stream_options": {"include_usage": True}},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_a_bad_request(
    sdk: openai.OpenAI, options: dict[str, Any]
) -> None:
    ask: Any = {"model": "tiny", "messages": HELLO} | options
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(**ask)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.body
