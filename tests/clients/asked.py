"""What tests ask for: conversations, tools, and types that answers have to fit."""

import enum
import json
from typing import Any

from pydantic import BaseModel, Field

HELLO = [{"role": "user", "content": "What do you know of rivers?"}]
WEATHER_ASKED = [{"role": "user", "content": "How is the weather in Bonn?"}]
# An answer then has exactly as many tokens as were allowed.
EXACT = {"ignore_eos": True}

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 7},
        },
        "required": ["city", "unit", "days"],
        "additionalProperties": False,
    },
}
NEWS: dict[str, Any] = {"name": "read_news", "parameters": {"type": "object", "properties": {}}}
TOOLS: list[Any] = [{"type": "function", "function": tool} for tool in (WEATHER, NEWS)]
RESPONSE_TOOLS: list[Any] = [{"type": "function", **tool} for tool in (WEATHER, NEWS)]


class Mood(enum.Enum):
    CALM = "calm"
    WILD = "wild"


class Source(BaseModel):
    name: str
    height_m: float = Field(ge=0)


class River(BaseModel):
    """Nested, with a pattern, an enum, lists, options and a reference to itself."""

    name: str = Field(min_length=3, max_length=40)
    code: str = Field(pattern=r"^[A-Z]{2}-\d{3}$")
    mood: Mood
    length_km: int = Field(ge=1, le=7000)
    sources: list[Source]
    mouth: str | None
    tributaries: list["River"]


class Forecast(BaseModel):
    """The arguments of a tool."""

    city: str
    days: int


def check_weather(arguments: str) -> None:
    given = json.loads(arguments)
    assert set(given) == {"city", "unit", "days"}
    assert isinstance(given["city"], str)
    assert given["unit"] in ("celsius", "fahrenheit")
    assert 1 <= given["days"] <= 7
