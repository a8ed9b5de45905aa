"""A server dies while it streams, and another one goes on with its streams."""

import asyncio
import random
import time
from dataclasses import dataclass, field

import openai
from fleet import CONTINUED, LOAD_S, Fleet
from load import REPLICA, name_of, sdk, text
from report import Section
from scenes.failure import until

VICTIM = 0
STREAMS = 4
# Long enough to be under way when the server dies, and to go on for a while.
TOKENS = 300
UNDER_WAY_WITHIN_S = 20.0
# What has been passed on before the server dies.
BEGUN_CHUNKS = 20
EXACT = {"max_tokens": TOKENS, "temperature": 0, "extra_body": {"ignore_eos": True}}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


@dataclass
class Told:
    """What one stream said."""

    kind: str
    replica: str = ""
    chunks: int = 0
    text: str = ""
    # Of the text, what was there when the server died.
    before: str = ""
    longest_pause_s: float = 0.0
    ids: set[str] = field(default_factory=set)
    finishes: list[str] = field(default_factory=list)
    usages: list[int] = field(default_factory=list)
    error: str = ""

    def is_whole(self) -> bool:
        told = (len(self.ids), self.finishes, self.usages)
        return not self.error and told == (1, ["length"], [TOKENS])


async def play(fleet: Fleet) -> Section:
    section = Section("Streams that outlive their server", ["what", "chats", "completions"])
    through, direct = sdk(fleet.url), sdk(fleet.servers[1 - VICTIM].url)
    rng = random.Random("continuation")
    asks = [(kind, text(rng, 20)) for kind in ("chat", "completion") for _ in range(STREAMS)]
    try:
        undisturbed = [await stream(direct, ask, Told(ask[0])) for ask in asks]
        told = [Told(kind) for kind, _ in asks]
        streams = [
            asyncio.create_task(stream(through, ask, each))
            for ask, each in zip(asks, told, strict=True)
        ]
        if not await until(UNDER_WAY_WITHIN_S, lambda: are_under_way(told)):
            raise TimeoutError("the streams do not begin")
        await asyncio.to_thread(fleet.servers[VICTIM].kill)
        for each in told:
            each.before = each.text
        await asyncio.gather(*streams)
        tell(section, told, undisturbed)
    finally:
        await through.close()
        await direct.close()
        server = fleet.restart(VICTIM)
        healthy = await until(LOAD_S, lambda: asyncio.to_thread(server.is_healthy))
        section.check(healthy, "the server does not come back")
    return section


async def stream(client: openai.AsyncOpenAI, ask: tuple[str, str], told: Told) -> Told:
    kind, prompt = ask
    try:
        if kind == "chat":
            messages = [{"role": "user", "content": prompt}]
            create = client.chat.completions.with_raw_response.create
            raw = await create(model=CONTINUED, messages=messages, **EXACT, **USAGE)
        else:
            create = client.completions.with_raw_response.create
            raw = await create(model=CONTINUED, prompt=prompt, **EXACT, **USAGE)
        told.replica = raw.headers.get(REPLICA, "")
        last_at = time.monotonic()
        async for chunk in raw.parse():
            now = time.monotonic()
            told.longest_pause_s = max(told.longest_pause_s, now - last_at)
            last_at = now
            note(told, chunk)
    except Exception as error:  # Any end of a stream is a finding here.
        told.error = name_of(error)
    return told


def note(told: Told, chunk) -> None:
    told.chunks += 1
    told.ids.add(chunk.id)
    for choice in chunk.choices:
        told.text += (choice.delta.content if told.kind == "chat" else choice.text) or ""
        if choice.finish_reason:
            told.finishes.append(choice.finish_reason)
    if chunk.usage:
        told.usages.append(chunk.usage.completion_tokens)


async def are_under_way(told: list[Told]) -> bool:
    return all(each.chunks >= BEGUN_CHUNKS for each in told)


def tell(section: Section, told: list[Told], undisturbed: list[Told]) -> None:
    both = list(zip(told, undisturbed, strict=True))

    def add(what: str, holds) -> None:
        counts = [
            sum(holds(*pair) for pair in both if pair[0].kind == kind)
            for kind in ("chat", "completion")
        ]
        section.add(what, *(f"{count} of {STREAMS}" for count in counts))

    lost = [each for each in told if each.replica == f"vllm-{VICTIM}"]
    section.check(len(lost) > 1, "the killed server had no streams")
    add("were at the server that was killed", lambda each, _: each in lost)
    add("ended whole, with one id and all tokens counted", lambda each, _: each.is_whole())
    add("have the text of an undisturbed run",
        lambda each, same: each.is_whole() and each.text == same.text)
    pause_ms = max(each.longest_pause_s for each in lost) * 1e3
    section.notes.append(f"The longest pause in a stream that went on: {pause_ms:.0f} ms")
    for each, same in both:
        section.check(each.is_whole(), f"{each.kind} is not whole: {each.error or shape(each)}")
        if each not in lost:
            section.check(each.text == same.text, f"{each.kind}: another text, undisturbed")
        begun = each.text.startswith(each.before) and same.text.startswith(each.before)
        section.check(begun, f"{each.kind}: what was told before is not how the text begins")


def shape(told: Told) -> str:
    return f"{len(told.ids)} ids, ends {told.finishes}, usage {told.usages}"
