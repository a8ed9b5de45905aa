"""Chat and text completions through the official SDK."""

import asyncio
import time
from contextlib import ExitStack

import httpx2
import openai

from world import REPLICAS, World

PROMPT = [{"role": "user", "content": "Name three rivers."}]
# An answer then has exactly as many tokens as were allowed.
EXACT = {"ignore_eos": True}


def test_a_chat_has_an_answer_and_its_usage(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(
        model="tiny", messages=PROMPT, max_tokens=12, extra_body=EXACT
    )
    assert chat.object == "chat.completion"
    assert chat.choices[0].message.role == "assistant"
    assert chat.choices[0].message.content
    assert chat.usage is not None
    assert chat.usage.completion_tokens == 12
    assert chat.usage.total_tokens == chat.usage.prompt_tokens + 12


def test_an_alias_is_served_by_the_model_behind_it(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(model="gpt-4o", messages=PROMPT, max_tokens=4)
    assert chat.model == "tiny"
    assert chat.choices[0].message.content


def test_a_stream_is_the_same_text_in_pieces(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model="tiny", messages=PROMPT, max_tokens=20, extra_body=EXACT
    )
    stream = client.chat.completions.create(
        model="tiny", messages=PROMPT, max_tokens=20, stream=True, extra_body=EXACT
    )
    chunks = list(stream)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert len([piece for piece in pieces if piece]) > 1
    assert "".join(pieces) == whole.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == "length"
    # Nobody asked for usage, so the client must not see any, whatever the node asked for itself.
    assert all(chunk.usage is None for chunk in chunks)


def test_a_stream_ends_with_usage_when_asked(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="tiny",
        messages=PROMPT,
        max_tokens=9,
        stream=True,
        stream_options={"include_usage": True},
        extra_body=EXACT,
    )
    chunks = list(stream)
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 9
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_stream_arrives_while_it_is_made(client: openai.OpenAI) -> None:
    """A stream left after its first chunk frees the connection for the next request."""
    with client.chat.completions.create(
        model="tiny", messages=PROMPT, max_tokens=2_000, stream=True, extra_body=EXACT
    ) as stream:
        first = next(iter(stream))
        assert first.choices[0].delta.role == "assistant"
    chat = client.chat.completions.create(model="tiny", messages=PROMPT, max_tokens=1)
    assert chat.usage is not None


def test_text_completions_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=10)
    assert whole.object == "text_completion"
    stream = client.completions.create(
        model="tiny", prompt="Once upon a time", max_tokens=10, stream=True
    )
    text = "".join(chunk.choices[0].text for chunk in stream if chunk.choices)
    assert text == whole.choices[0].text
    assert text


def test_the_sdks_raw_response_shows_the_request_id(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="tiny",
        messages=PROMPT,
        max_tokens=1,
        extra_headers={"x-request-id": "from-the-client-1"},
    )
    assert raw.headers["x-request-id"] == "from-the-client-1"
    assert raw.request_id == "from-the-client-1"
    assert raw.parse().choices


def test_many_async_chats_at_once(world: World) -> None:
    async def chat(client: openai.AsyncOpenAI, number: int) -> str | None:
        content = f"Say {number}."
        chat = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": content}], max_tokens=8
        )
        return chat.choices[0].message.content

    async def all_chats() -> list[str | None]:
        # Closed before the loop ends, or the SDK's connections outlive their loop.
        async with async_client(world) as client:
            return await asyncio.gather(*(chat(client, number) for number in range(40)))

    answers = asyncio.run(all_chats())
    assert len(answers) == 40
    assert all(answers)


def test_many_async_streams_at_once(world: World) -> None:
    async def tokens(client: openai.AsyncOpenAI) -> int:
        stream = await client.chat.completions.create(
            model="tiny",
            messages=PROMPT,
            max_tokens=15,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=EXACT,
        )
        chunks = [chunk async for chunk in stream]
        return chunks[-1].usage.completion_tokens

    async def all_streams() -> list[int]:
        async with async_client(world) as client:
            return await asyncio.gather(*(tokens(client) for _ in range(20)))

    assert asyncio.run(all_streams()) == [15] * 20


def test_many_streams_share_one_http2_connection(world: World) -> None:
    async def text(client: openai.AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(
            model="tiny", messages=PROMPT, max_tokens=15, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_streams() -> list[str]:
        limits = httpx2.Limits(max_connections=1)
        # Without HTTP/1.1 to choose from, it begins with HTTP/2 at once.
        async with httpx2.AsyncClient(http1=False, http2=True, limits=limits, timeout=20) as http:
            client = async_client(world).copy(http_client=http)
            return await asyncio.gather(*(text(client) for _ in range(50)))

    texts = asyncio.run(all_streams())
    assert texts[0]
    assert texts == [texts[0]] * 50


def test_load_goes_to_every_replica(client: openai.OpenAI) -> None:
    every = {f"tiny-{index}" for index in range(REPLICAS)}
    names = set()
    # Held open beside each other: one after the other would all go to the fastest of the idle ones. A replica
    # that was just slower than the others gets requests again after some seconds, so that this goes on until
    # all have had some.
    with ExitStack() as streams:
        until = time.monotonic() + 90
        while names != every and time.monotonic() < until:
            for _ in range(20):
                stream = client.chat.completions.with_streaming_response.create(
                    model="tiny", messages=PROMPT, max_tokens=2_000, stream=True, extra_body=EXACT
                )
                names.add(streams.enter_context(stream).headers["x-spillway-replica"])
            streams.close()
    assert names == every


def async_client(world: World) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{world.url}/v1", api_key="unused", max_retries=0, timeout=20
    )
