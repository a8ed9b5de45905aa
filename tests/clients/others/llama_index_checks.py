"""What users of llama-index do with a server that is like OpenAI's."""

import asyncio
from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

HELLO = [ChatMessage(role="user", content="What do you know of rivers?")]


class River(BaseModel):
    name: str
    length_km: int


def model(url: str, **options: Any) -> OpenAILike:
    settings = {
        "model": "tiny", "api_base": f"{url}/v1", "api_key": "unused", "max_retries": 0,
        "max_tokens": 100, "context_window": 4_000, "is_chat_model": True,
        "is_function_calling_model": True,
    }
    return OpenAILike(**settings | options)


def check_chat(url: str) -> None:
    said = model(url).chat(HELLO).message.content
    assert said
    assert "".join(reply.delta or "" for reply in model(url).stream_chat(HELLO)) == said


def check_complete(url: str) -> None:
    llm = model(url, is_chat_model=False)
    said = llm.complete("Once").text
    assert said
    assert "".join(reply.delta or "" for reply in llm.stream_complete("Once")) == said


def check_async(url: str) -> None:
    async def ask() -> tuple[str, str]:
        llm = model(url)
        whole = await llm.achat(HELLO)
        deltas = [reply.delta or "" async for reply in await llm.astream_chat(HELLO)]
        return str(whole.message.content), "".join(deltas)

    whole, streamed = asyncio.run(ask())
    assert whole == streamed != ""


def check_tools(url: str) -> None:
    def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"rain in {city}"

    tool = FunctionTool.from_defaults(get_weather)
    reply = model(url).predict_and_call([tool], user_msg="How is the weather in Bonn?")
    assert "rain in" in str(reply)


def check_types(url: str) -> None:
    reply = model(url).as_structured_llm(River).complete("Name a river.")
    assert isinstance(reply.raw, River)
