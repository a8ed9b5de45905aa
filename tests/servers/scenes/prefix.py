"""How much of the prompts the servers find in their caches, policy by policy.

Prompts begin in one of a few ways. The caches of both servers together hold all beginnings, that of
one server does not.
"""

import random

from fleet import BLOCK_TOKENS, BLOCKS, Fleet, model_of
from load import Ask, closed_loop, percentile, sdk, text
from page import read
from report import Section

GROUPS = 24
REQUESTS = 160
STREAMS = 6
# 1.9 tokens a word with its space: 500 tokens a beginning, 12 k of all; 8 k fit in one cache. More
# than 1 KiB, so that `prompt_prefix` sees nothing of the question.
PREFIX_WORDS = 260
QUESTION_WORDS = 8
TOKENS = 8


async def play(fleet: Fleet) -> Section:
    section = Section(
        "Prefix cache",
        ["policy", "prompt tokens", "of them cached", "first token p50 ms", "first token p99 ms",
         "requests per replica"],
    )
    for policy in fleet.policies.names:
        await measure(section, fleet, policy)
    section.notes.append(
        f"{GROUPS} beginnings of {PREFIX_WORDS} words, {REQUESTS} requests in random order, "
        f"{STREAMS} at a time; each server's cache holds {BLOCK_TOKENS * BLOCKS} tokens"
    )
    section.check(len(section.rows) > 1, "fewer than two policies to compare")
    return section


async def measure(section: Section, fleet: Fleet, policy: str) -> None:
    before = cached_and_asked(fleet)
    client = sdk(fleet.url)
    try:
        samples = await closed_loop(client, STREAMS, asks(policy))
    finally:
        await client.close()
    cached, asked = (now - then for now, then in zip(cached_and_asked(fleet), before, strict=True))
    first = [sample.first_token_ms for sample in samples if not sample.error]
    replicas = sorted({sample.replica for sample in samples})
    shares = [sum(sample.replica == replica for sample in samples) for replica in replicas]
    section.add(
        policy + (" by prompt_prefix" if policy in fleet.policies.hashing else ""),
        int(asked),
        f"{cached / max(asked, 1):.0%}",
        percentile(first, 0.5),
        percentile(first, 0.99),
        " + ".join(map(str, shares)),
    )
    wrong = [sample.error for sample in samples if sample.error]
    section.check(not wrong, f"{policy}: {len(wrong)} errors, first: {wrong[:1]}")


def asks(policy: str) -> list[Ask]:
    """The same work for every policy, with beginnings of its own: nothing is cached at first."""
    words = random.Random(policy)
    beginnings = [text(words, PREFIX_WORDS) for _ in range(GROUPS)]
    order = random.Random(REQUESTS)
    return [
        Ask(model_of(policy), f"{order.choice(beginnings)} {text(words, QUESTION_WORDS)}", TOKENS)
        for _ in range(REQUESTS)
    ]


def cached_and_asked(fleet: Fleet) -> tuple[float, float]:
    pages = [read(server.url) for server in fleet.servers]
    return (
        sum(page.total("vllm:prefix_cache_hits_total") for page in pages),
        sum(page.total("vllm:prefix_cache_queries_total") for page in pages),
    )
