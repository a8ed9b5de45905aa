"""Sends streamed chats with the OpenAI SDK and notes what became of each."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import openai

WORDS = Path(__file__).with_name("words.txt").read_text().split()
REQUEST_TIMEOUT_S = 60
# The header by which the gateway says who answered.
REPLICA = "x-spillway-replica"


@dataclass
class Sample:
    """One request as its client saw it. Times are of the monotonic clock."""

    started_at: float
    first_at: float = 0.0
    ended_at: float = 0.0
    tokens: int = 0
    replica: str = ""
    # Empty if the answer came whole.
    error: str = ""

    @property
    def first_token_ms(self) -> float:
        return (self.first_at - self.started_at) * 1e3


@dataclass(frozen=True)
class Ask:
    """What to ask for."""

    model: str
    prompt: str
    tokens: int


def sdk(url: str) -> openai.AsyncOpenAI:
    """The SDK, told not to hide errors behind retries."""
    return openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=REQUEST_TIMEOUT_S
    )


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


async def send(client: openai.AsyncOpenAI, ask: Ask) -> Sample:
    """Streams one chat. Whatever goes wrong is part of the sample."""
    sample = Sample(time.monotonic())
    try:
        await stream(client, ask, sample)
    except Exception as error:  # Any end of a request is a finding here.
        sample.error = name_of(error)
    sample.ended_at = time.monotonic()
    return sample


async def send_whole(client: openai.AsyncOpenAI, ask: Ask) -> Sample:
    """The same without a stream: the answer comes in one piece or not at all."""
    sample = Sample(time.monotonic())
    try:
        raw = await client.chat.completions.with_raw_response.create(**body(ask))
        sample.replica = raw.headers.get(REPLICA, "")
        usage = raw.parse().usage
        sample.tokens = usage.completion_tokens if usage else 0
    except Exception as error:  # As above.
        sample.error = name_of(error)
    sample.ended_at = time.monotonic()
    return sample


async def stream(client: openai.AsyncOpenAI, ask: Ask, sample: Sample) -> None:
    raw = await client.chat.completions.with_raw_response.create(
        **body(ask), stream=True, stream_options={"include_usage": True}
    )
    sample.replica = raw.headers.get(REPLICA, "")
    finished = False
    async for chunk in raw.parse():
        if chunk.choices and chunk.choices[0].delta.content:
            sample.first_at = sample.first_at or time.monotonic()
        finished = finished or any(choice.finish_reason for choice in chunk.choices)
        sample.tokens = chunk.usage.completion_tokens if chunk.usage else sample.tokens
    if not finished:
        sample.error = "the stream ended early, without an error"


def body(ask: Ask) -> dict:
    return {
        "model": ask.model,
        "messages": [{"role": "user", "content": ask.prompt}],
        "max_tokens": ask.tokens,
        "temperature": 0,
        # The answer then has exactly that many tokens.
        "extra_body": {"ignore_eos": True},
    }


def name_of(error: Exception) -> str:
    """The kind of an error with what tells it from others of its kind."""
    if isinstance(error, openai.APIStatusError):
        return f"{type(error).__name__} {error.status_code}: {error.message[:120]}"
    cause = f" ({type(error.__cause__).__name__})" if error.__cause__ else ""
    return f"{type(error).__name__}{cause}: {str(error)[:120]}"


async def closed_loop(client: openai.AsyncOpenAI, streams: int, asks: list[Ask]) -> list[Sample]:
    """Sends all of `asks`, at most `streams` at a time."""
    waiting = iter(asks)

    async def work() -> list[Sample]:
        return [await send(client, ask) for ask in waiting]

    done = await asyncio.gather(*(work() for _ in range(streams)))
    return [sample for samples in done for sample in samples]


class OpenLoop:
    """Requests at the rate of `per_s`, whether or not earlier ones have ended."""

    def __init__(
        self, client: openai.AsyncOpenAI, per_s: float, next_ask: Callable[[], Ask]
    ) -> None:
        self.per_s = per_s
        self.samples: list[Sample] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._pace = asyncio.create_task(self._run(client, next_ask))

    async def stop(self) -> list[Sample]:
        """Sends no more, waits for those under way and returns all."""
        self._pace.cancel()
        await asyncio.gather(*self._under_way)
        return self.samples

    async def _run(self, client: openai.AsyncOpenAI, next_ask: Callable[[], Ask]) -> None:
        due = time.monotonic()
        while True:
            task = asyncio.create_task(self._one(client, next_ask()))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            due += 1 / self.per_s
            # wait: the time at which the next request is due
            await asyncio.sleep(due - time.monotonic())

    async def _one(self, client: openai.AsyncOpenAI, ask: Ask) -> None:
        self.samples.append(await send(client, ask))


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of the values do not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
