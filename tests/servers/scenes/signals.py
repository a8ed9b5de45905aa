"""What the gateway says of its replicas under load, beside what they say of themselves."""

import asyncio
import random

from fleet import MODEL, SERVERS, Fleet
from load import Ask, closed_loop, sdk, text
from page import Page, read
from report import Section

# Three times what both servers run at a time: some requests wait.
STREAMS = 24
REQUESTS = 120
TOKENS = 64
PERIOD_S = 0.2
LOAD = "spillway_replica_load"
# The gateway's name of a signal, and the server's.
SIGNALS = {
    "running": "vllm:num_requests_running",
    "queued": "vllm:num_requests_waiting",
    "kv_use": "vllm:kv_cache_usage_perc",
}
# The gateway's page and those of the servers, read one right after the other.
Moment = tuple[Page, list[Page]]


async def play(fleet: Fleet) -> Section:
    section = Section(
        "Load as the gateway sees it",
        ["replica", "signal", "most, by the server", "most, by the gateway",
         "mean difference at the same moment"],
    )
    client = sdk(fleet.url)
    watching = asyncio.create_task(watch(fleet))
    try:
        # Of several lengths, so that not all end at once.
        rng = random.Random("signals")
        asks = [Ask(MODEL, text(rng, 60), rng.randint(1, 2 * TOKENS)) for _ in range(REQUESTS)]
        samples = await closed_loop(client, STREAMS, asks)
    finally:
        watching.cancel()
        await client.close()
    moments: list[Moment] = (await asyncio.gather(watching))[0]
    wrong = [sample.error for sample in samples if sample.error]
    section.check(not wrong, f"{len(wrong)} errors, first: {wrong[:1]}")
    if any(page.has(LOAD) for page, _ in moments):
        compare(section, moments)
    else:
        section.notes.append(f"This build of the gateway has no `{LOAD}`.")
    others(section, moments)
    return section


async def watch(fleet: Fleet) -> list[Moment]:
    """Reads all pages again and again until it is cancelled."""
    moments: list[Moment] = []
    try:
        while True:
            pages = [asyncio.to_thread(read, server.url) for server in fleet.servers]
            gateway, *servers = await asyncio.gather(
                asyncio.to_thread(read, fleet.admin_url), *pages
            )
            moments.append((gateway, servers))
            # wait: the time between two readings
            await asyncio.sleep(PERIOD_S)
    except asyncio.CancelledError:
        return moments


def compare(section: Section, moments: list[Moment]) -> None:
    for index in range(SERVERS):
        replica = f"vllm-{index}"
        for signal, name in SIGNALS.items():
            pairs = [
                (gateway.total(LOAD, replica=replica, signal=signal), servers[index].total(name))
                for gateway, servers in moments
            ]
            by_gateway, by_server = max(g for g, _ in pairs), max(s for _, s in pairs)
            difference = sum(abs(g - s) for g, s in pairs) / len(pairs)
            section.add(replica, f"`{signal}`", by_server, by_gateway, difference)
            # A queue of a moment may be gone before the gateway looks.
            steady = any(all(s for _, s in pairs[at : at + 3]) for at in range(len(pairs) - 2))
            missed = steady and by_gateway == 0
            section.check(not missed, f"{replica}: the gateway never saw `{signal}` above 0")


def others(section: Section, moments: list[Moment]) -> None:
    """The other metrics of a replica, at their highest."""
    highest: dict[str, float] = {}
    for gateway, _ in moments:
        for name, labels, value in gateway.series:
            if name.startswith("spillway_replica_") and labels.get("replica") == "vllm-0":
                rest = ", ".join(f"{k}={v}" for k, v in sorted(labels.items()) if k != "replica")
                series = f"{name}{{{rest}}}" if rest else name
                highest[series] = max(value, highest.get(series, value))
    shown = ", ".join(f"`{name}` {value:g}" for name, value in sorted(highest.items()))
    section.notes.append(f"{STREAMS} streams; `vllm-0` at its highest: {shown}")
