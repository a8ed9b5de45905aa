"""How much of a chat's next turn the servers find cached, and how much the gateway expected.

Every chat sends its whole history again, as clients do: the server has read its beginning and has
written the replies in it. The caches of both servers together hold all chats, that of one server
does not.
"""

import asyncio
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import openai

from fleet import BLOCK_TOKENS, BLOCKS, Fleet, model_of
from load import REPLICA, WORDS, name_of, percentile, sdk, text
from report import Section
from scenes.prefix import cached_and_asked

POLICIES = ["round_robin", "predicted_latency", "prefix_aware"]
CHATS = 24
TURNS = 4
STREAMS = 6
TOKENS = 64
SYSTEM_PROMPTS = 4
SYSTEM_WORDS = 60
USER_WORDS = 40
# What the gateway expects: of all policies only `predicted_latency` says it.
EXPECTED = "x-spillway-cached-tokens"
# Words: tokens that the server also reads its own text as, like those of a trained model. Any: what
# a random model says by itself, which the tokenizer mostly cuts in other ways when it comes back.
KINDS = ["words", "any"]


@dataclass
class Turn:
    """One request of a chat, with the server's count of its tokens."""

    number: int
    # Of the turn before: what the same server could have kept of its prompt and its reply.
    before: int = 0
    prompt: int = 0
    cached: int = 0
    expected: int = 0
    replied: int = 0
    first_token_ms: float = 0.0
    replica: str = ""
    stayed: bool = False
    error: str = ""


@dataclass
class Chat:
    """A conversation so far."""

    messages: list[dict[str, str]]
    turns: list[Turn] = field(default_factory=list)


async def play(fleet: Fleet) -> Section:
    section = Section(
        "Chats",
        ["replies", "policy", "prompt tokens", "of them cached", "expected",
         "later turns where the one before was",
         "of what that left: cached", "expected", "first token p50 ms", "p99 ms"],
    )
    for kind in KINDS:
        for policy in POLICIES:
            if policy in fleet.policies.names:
                await measure(section, fleet, kind, policy)
    section.notes.append(
        f"{CHATS} chats of {TURNS} turns, {USER_WORDS} words asked and {TOKENS} tokens replied in each, behind "
        f"{SYSTEM_PROMPTS} system prompts of {SYSTEM_WORDS} words; {STREAMS} at a time, all chats turn by turn; "
        f"each server's cache holds {BLOCK_TOKENS * BLOCKS} tokens in blocks of {BLOCK_TOKENS}"
    )
    section.notes.append(
        "Cached: by the servers' own counters. What the turn before left: its prompt and its reply in whole "
        "blocks, wherever it was served; cached and expected of it are by the replies and by the gateway"
    )
    section.check(len(section.rows) > 1, "fewer than two policies to compare")
    return section


async def measure(section: Section, fleet: Fleet, kind: str, policy: str) -> None:
    before = cached_and_asked(fleet)
    turns = await talk(fleet, kind, policy)
    cached, asked = (now - then for now, then in zip(cached_and_asked(fleet), before, strict=True))
    good = [turn for turn in turns if not turn.error]
    later = [turn for turn in good if turn.before]
    left = max(sum(turn.before for turn in later), 1)
    first = [turn.first_token_ms for turn in good]
    knows = policy == "predicted_latency"
    section.add(
        kind,
        policy,
        int(asked),
        f"{cached / max(asked, 1):.0%}",
        f"{sum(turn.expected for turn in good) / max(asked, 1):.0%}" if knows else "-",
        f"{sum(turn.stayed for turn in later)} of {len(later)}",
        f"{sum(min(turn.cached, turn.before) for turn in later) / left:.0%}",
        f"{sum(min(turn.expected, turn.before) for turn in later) / left:.0%}" if knows else "-",
        percentile(first, 0.5),
        percentile(first, 0.99),
    )
    wrong = [turn.error for turn in turns if turn.error]
    section.check(not wrong, f"{policy}: {len(wrong)} errors, first: {wrong[:1]}")


async def talk(fleet: Fleet, kind: str, policy: str) -> list[Turn]:
    """The same work for every policy, with texts of its own: nothing is cached at first."""
    words = random.Random(f"{kind} {policy}")
    systems = [text(words, SYSTEM_WORDS) for _ in range(SYSTEM_PROMPTS)]
    chats = [Chat([{"role": "system", "content": words.choice(systems)}]) for _ in range(CHATS)]
    order = random.Random(CHATS)
    extra = {"ignore_eos": True} | ({"allowed_token_ids": whole_words(fleet)} if kind == "words" else {})
    client = sdk(fleet.url)
    try:
        for number in range(TURNS):
            order.shuffle(chats)
            for chat in chats:
                chat.messages.append({"role": "user", "content": text(words, USER_WORDS)})
            waiting = iter(chats)
            await asyncio.gather(
                *(work(client, model_of(policy), extra, number, waiting) for _ in range(STREAMS))
            )
    finally:
        await client.close()
    return [turn for chat in chats for turn in chat.turns]


async def work(
    client: openai.AsyncOpenAI, model: str, extra: dict, number: int, waiting: Iterator[Chat]
) -> None:
    for chat in waiting:
        turn = Turn(number)
        if chat.turns:
            last = chat.turns[-1]
            # The last token of a reply is written, but not read again.
            turn.before = (last.prompt + max(last.replied - 1, 0)) // BLOCK_TOKENS * BLOCK_TOKENS
        try:
            await ask(client, model, extra, chat, turn)
        except Exception as error:  # Any end of a request is a finding here.
            turn.error = name_of(error)
        turn.stayed = bool(chat.turns) and chat.turns[-1].replica == turn.replica
        chat.turns.append(turn)


async def ask(
    client: openai.AsyncOpenAI, model: str, extra: dict, chat: Chat, turn: Turn
) -> None:
    started_at = time.monotonic()
    raw = await client.chat.completions.with_raw_response.create(
        model=model, messages=chat.messages, max_tokens=TOKENS, temperature=0,
        stream=True, stream_options={"include_usage": True}, extra_body=extra,
    )
    turn.replica = raw.headers.get(REPLICA, "")
    turn.expected = int(raw.headers.get(EXPECTED, 0))
    reply = ""
    async for chunk in raw.parse():
        if chunk.choices and chunk.choices[0].delta.content:
            turn.first_token_ms = turn.first_token_ms or (time.monotonic() - started_at) * 1e3
            reply += chunk.choices[0].delta.content
        if chunk.usage:
            turn.prompt, turn.replied = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
            details = chunk.usage.prompt_tokens_details
            turn.cached = (details and details.cached_tokens) or 0
    chat.messages.append({"role": "assistant", "content": reply})


def whole_words(fleet: Fleet) -> list[int]:
    """The tokens that are a space and a word. Whatever is said with them is read as it was written."""
    tokenizer = json.loads((fleet.folder / "model" / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    # This is how tokenizers of bytes write a space.
    return [vocabulary[f"\u0120{word}"] for word in WORDS if f"\u0120{word}" in vocabulary]
