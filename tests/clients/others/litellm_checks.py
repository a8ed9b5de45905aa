"""What users of litellm do: chats of both providers, streams, tools, Responses, rerank, audio, errors."""

import asyncio
import io
from typing import Any

import litellm

# Else it prints advice beside its errors, to standard output.
litellm.suppress_debug_info = True

PROVIDERS = ["openai", "hosted_vllm"]
HELLO = [{"role": "user", "content": "What do you know of rivers?"}]
WEATHER_ASKED = [{"role": "user", "content": "How is the weather in Bonn?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def at(url: str) -> dict[str, Any]:
    """Where to ask, with errors not hidden behind retries."""
    return {"api_base": f"{url}/v1", "api_key": "unused", "max_retries": 0, "timeout": 30}


def chat(url: str, provider: str, **options: Any) -> Any:
    ask = {"model": f"{provider}/tiny", "messages": HELLO, "max_tokens": 8} | options
    return litellm.completion(**ask, **at(url))


def check_chat(url: str) -> None:
    for provider in PROVIDERS:
        reply = chat(url, provider)
        assert reply.choices[0].message.content
        assert reply.usage.completion_tokens == 8


def check_stream(url: str) -> None:
    for provider in PROVIDERS:
        chunks = list(chat(url, provider, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == chat(url, provider).choices[0].message.content
        assert chunks[-1].usage.completion_tokens == 8


def check_tools(url: str) -> None:
    for provider in PROVIDERS:
        ask = {"messages": WEATHER_ASKED, "tools": [TOOL], "max_tokens": 100}
        (call,) = chat(url, provider, **ask).choices[0].message.tool_calls
        assert call.function.name == "get_weather"


def check_text(url: str) -> None:
    reply = litellm.text_completion(
        model="text-completion-openai/tiny", prompt="Once", max_tokens=8, **at(url)
    )
    assert reply.choices[0].text


def check_embeddings(url: str) -> None:
    for provider in PROVIDERS:
        reply = litellm.embedding(model=f"{provider}/tiny", input=["a", "b"], **at(url))
        assert len(reply.data) == 2


def check_responses(url: str) -> None:
    ask = {"model": "openai/tiny", "input": "Hello.", "max_output_tokens": 16} | at(url)
    assert litellm.responses(**ask).output
    events = list(litellm.responses(**ask, stream=True))
    assert events[-1].response.output


def check_rerank(url: str) -> None:
    # Its own path for vLLM: `/rerank`.
    reply = litellm.rerank(
        model="hosted_vllm/tiny", query="river", documents=["a river", "a tree"], top_n=2,
        api_base=url, api_key="unused",
    )
    assert [result["index"] for result in reply.results] == [0, 1]


def check_audio(url: str) -> None:
    file = io.BytesIO(bytes(20_000))
    file.name = "a.wav"
    assert litellm.transcription(model="openai/tiny", file=file, **at(url)).text
    assert litellm.speech(model="openai/tiny", voice="alloy", input="hi", **at(url)).content


def check_models(url: str) -> None:
    models = litellm.get_valid_models(
        check_provider_endpoint=True, custom_llm_provider="openai", api_base=url, api_key="unused"
    )
    assert any("tiny" in model for model in models)


def check_many_at_once(url: str) -> None:
    async def ask(number: int) -> Any:
        messages = [{"role": "user", "content": f"Say {number}."}]
        return await litellm.acompletion(
            model="hosted_vllm/tiny", messages=messages, max_tokens=8, **at(url)
        )

    async def ask_all() -> list[Any]:
        return await asyncio.gather(*(ask(number) for number in range(30)))

    assert all(reply.choices[0].message.content for reply in asyncio.run(ask_all()))


def check_errors(url: str) -> None:
    for provider in PROVIDERS:
        for wrong, expected in [
            ({"model": f"{provider}/huge"}, litellm.NotFoundError),
            ({"temperature": 9}, litellm.BadRequestError),
        ]:
            try:
                chat(url, provider, **wrong)
            except expected:
                continue
            raise AssertionError(f"{wrong} is served")
