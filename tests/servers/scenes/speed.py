"""The same load on the same server, asked directly and through the gateway."""

import operator
import random
import statistics
from dataclasses import dataclass, field

from fleet import Fleet, own_name
from load import Ask, Sample, closed_loop, percentile, sdk, text
from page import read
from report import Section

STREAMS = [1, 8]
# Each way takes turns with the other, so that both see the same moods of the machine.
ROUNDS = 4
PER_STREAM = {1: 12, 8: 4}
TOKENS = 64
PROMPT_WORDS = 60


@dataclass
class Way:
    """What was measured on one way to the server."""

    samples: list[Sample] = field(default_factory=list)
    tokens_per_s: list[float] = field(default_factory=list)
    gateway_cpu_s: float = 0.0

    def cells(self) -> list[str | float]:
        first = [sample.first_token_ms for sample in self.samples]
        rates = self.tokens_per_s
        return [
            percentile(first, 0.5),
            percentile(first, 0.99),
            f"{statistics.median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f})",
        ]


async def play(fleet: Fleet) -> Section:
    section = Section(
        "Speed of one server",
        ["streams", "way", "first token p50 ms", "first token p99 ms",
         "tokens/s, median round (range)", "gateway CPU ms per request"],
    )
    overhead_before = overhead(fleet)
    for streams in STREAMS:
        ways = await measure(fleet, streams)
        for name, way in ways.items():
            requests = len(way.samples)
            cpu = way.gateway_cpu_s * 1e3 / requests if name == "gateway" else "-"
            section.add(streams, name, *way.cells(), cpu)
            wrong = [sample.error for sample in way.samples if sample.error]
            section.check(not wrong, f"{streams} streams, {name}: {wrong[:1]}")
    spent_s, requests = map(operator.sub, overhead(fleet), overhead_before)
    section.notes.append(
        "The gateway's own time before it asks the server, by its own metrics: "
        f"{spent_s / requests * 1e6:.0f} µs on average"
    )
    section.notes.append(
        f"{TOKENS} tokens each; {ROUNDS} rounds, the ways in turn; client, gateway and servers "
        "share the machine"
    )
    return section


async def measure(fleet: Fleet, streams: int) -> dict[str, Way]:
    server = fleet.servers[0]
    ways = {"direct": Way(), "gateway": Way()}
    clients = {"direct": sdk(server.url), "gateway": sdk(fleet.url)}
    try:
        for client in clients.values():
            await closed_loop(client, streams, asks(streams, "warm-up", 1))
        for number in range(ROUNDS):
            # The first of a pair is not always the same way.
            order = ["direct", "gateway"] if number % 2 else ["gateway", "direct"]
            for name in order:
                wanted = asks(streams, f"{name} {number}", PER_STREAM[streams])
                await one_round(fleet, ways[name], closed_loop(clients[name], streams, wanted))
    finally:
        for client in clients.values():
            await client.close()
    return ways


async def one_round(fleet: Fleet, way: Way, load) -> None:
    cpu_before = fleet.gateway.cpu_s()
    samples = await load
    way.gateway_cpu_s += fleet.gateway.cpu_s() - cpu_before
    way.samples += samples
    took_s = max(sample.ended_at for sample in samples) - min(s.started_at for s in samples)
    way.tokens_per_s.append(sum(sample.tokens for sample in samples) / took_s)


def overhead(fleet: Fleet) -> tuple[float, float]:
    """Seconds that the gateway spent itself, and on how many requests."""
    page, name = read(fleet.admin_url), "spillway_gateway_overhead_seconds"
    return page.total(f"{name}_sum"), page.total(f"{name}_count")


def asks(streams: int, salt: str, each: int) -> list[Ask]:
    """Prompts that no server has seen."""
    rng = random.Random(f"{salt} {streams}")
    count = streams * each
    return [Ask(own_name(0), text(rng, PROMPT_WORDS), TOKENS) for _ in range(count)]
