"""One server dies under load, stays dead for a while and comes back."""

import asyncio
import collections
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fleet import LOAD_S, MODEL, POLL_S, Fleet, own_name
from load import Ask, OpenLoop, Sample, percentile, sdk, send, send_whole, text
from page import Page, read
from report import Section

VICTIM = 0
REPLICA = f"vllm-{VICTIM}"
PER_S = 5.0
# While the server loads: enough to see what happens to requests, and processor time left to load.
PER_S_MEANWHILE = 2.0
TOKENS = 48
# Long enough to be under way when the server dies.
LONG_TOKENS = 1_500
UNDER_WAY_WITHIN_S = 10.0
HEALTHY_S = 5.0
DEAD_S = 12.0
SERVED_WITHIN_S = 60.0
# A little longer than the default slow start of the gateway.
BACK_S = 35.0
SHARES_S = [(0, 2), (2, 5), (5, 10), (10, 20), (20, 35)]


@dataclass
class Story:
    """When what happened, on the monotonic clock, and what was seen."""

    killed_at: float = 0.0
    restarted_at: float = 0.0
    # 0 if it did not come back in time.
    healthy_at: float = 0.0
    ended_at: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    # What clients saw whose only server died, by the way they took.
    cut: dict[str, Sample] = field(default_factory=dict)
    # Readings of the gateway's page.
    pages: list[tuple[float, Page]] = field(default_factory=list)

    def between(self, start: float, end: float) -> list[Sample]:
        """Requests that began within that time."""
        return [sample for sample in self.samples if start <= sample.started_at < end]


async def play(fleet: Fleet) -> Section:
    story = Story()
    client, calls = sdk(fleet.url), LongCalls(fleet)
    watching = asyncio.create_task(watch(fleet, story))
    load = OpenLoop(client, PER_S, endless_asks())
    try:
        await happen(fleet, story, load, calls)
    finally:
        story.samples = await load.stop()
        watching.cancel()
        await client.close()
        await calls.close()
    section = Section("A server dies and comes back", ["what", "seen"])
    tell_of_death(section, story)
    tell_of_return(section, story)
    return section


def endless_asks() -> Callable[[], Ask]:
    rng = random.Random("failure")
    return lambda: Ask(MODEL, text(rng, 40), TOKENS)


async def happen(fleet: Fleet, story: Story, load: OpenLoop, calls: "LongCalls") -> None:
    # wait: a while with both servers, to compare with
    await asyncio.sleep(HEALTHY_S)
    cut = asyncio.create_task(calls.make())
    if not await until(UNDER_WAY_WITHIN_S, calls.are_under_way):
        raise TimeoutError("the long calls do not begin")
    story.killed_at = time.monotonic()
    await asyncio.to_thread(fleet.servers[VICTIM].kill)
    # wait: a while with one server
    await asyncio.sleep(story.killed_at + DEAD_S - time.monotonic())
    story.cut = await cut
    story.restarted_at = time.monotonic()
    load.per_s = PER_S_MEANWHILE
    server = fleet.restart(VICTIM)
    if not await until(LOAD_S, lambda: asyncio.to_thread(server.is_healthy)):
        return
    load.per_s = PER_S
    story.healthy_at = time.monotonic()
    await until(SERVED_WITHIN_S, lambda: served_since(load, story.healthy_at))
    # wait: the time in which its share grows
    await asyncio.sleep(BACK_S)
    story.ended_at = time.monotonic()


class LongCalls:
    """Calls to the one server, as a stream and as a whole, on both ways to it."""

    def __init__(self, fleet: Fleet) -> None:
        self._victim = fleet.servers[VICTIM].url
        urls = {"directly": self._victim, "through the gateway": fleet.url}
        # Made early: making one takes long enough to hold up the load.
        self._calls = {
            f"{kind}, {way}": (sdk(url), how)
            for kind, how in {"streamed": send, "whole": send_whole}.items()
            for way, url in urls.items()
        }

    async def make(self) -> dict[str, Sample]:
        """What became of each, by what it was."""
        ask = Ask(own_name(VICTIM), "Hello.", LONG_TOKENS)
        made = [how(client, ask) for client, how in self._calls.values()]
        return dict(zip(self._calls, await asyncio.gather(*made), strict=True))

    async def are_under_way(self) -> bool:
        """Whether the server works on all of them."""
        page = await asyncio.to_thread(read, self._victim)
        return page.total("vllm:num_requests_running") >= len(self._calls)

    async def close(self) -> None:
        for client, _ in self._calls.values():
            await client.close()


async def served_since(load: OpenLoop, moment: float) -> bool:
    """Whether the server that came back has answered a request sent after `moment`."""
    return any(served(sample) for sample in load.samples if sample.started_at > moment)


def served(sample: Sample) -> bool:
    return sample.replica == REPLICA and not sample.error


async def until(within_s: float, holds: Callable[[], Awaitable[bool]]) -> bool:
    """Waits until `holds`; whether it did in time."""
    deadline = time.monotonic() + within_s
    while not await holds():
        if time.monotonic() > deadline:
            return False
        # wait: paces the polling
        await asyncio.sleep(POLL_S)
    return True


async def watch(fleet: Fleet, story: Story) -> None:
    """Reads the gateway's metrics again and again until it is cancelled."""
    while True:
        page = await asyncio.to_thread(read, fleet.admin_url)
        story.pages.append((time.monotonic(), page))
        # wait: the time between two readings
        await asyncio.sleep(POLL_S)


def tell_of_death(section: Section, story: Story) -> None:
    killed_at = story.killed_at
    before = story.between(0, killed_at)
    section.add("requests begun before", outcome(before))
    under_way = [sample for sample in before if sample.ended_at > killed_at]
    early = [sample for sample in before if sample.error and sample not in under_way]
    section.check(not early, "errors before anything happened")
    there = [sample for sample in under_way if sample.replica in (REPLICA, "")]
    section.add("of them under way when the server was killed", outcome(under_way))
    section.add("of those at the killed server, or not answered yet", outcome(there))
    section.add(f"requests begun in the {DEAD_S:g} s after",
                outcome(story.between(killed_at, story.restarted_at)))
    for call, sample in story.cut.items():
        after_ms = (sample.ended_at - killed_at) * 1e3
        seen = f"`{sample.error or 'a whole answer'}`"
        section.add(f"long answer cut off, {call}", f"{seen}, after {after_ms:.0f} ms")
        section.check(bool(sample.error), f"{call}: a cut answer was taken for a whole one")
    section.add("attempts there after the kill", attempts(story, killed_at, story.restarted_at))
    after = story.between(killed_at, story.restarted_at)
    section.add("first token p50, p99 before", first_tokens(before))
    section.add("first token p50, p99 after", first_tokens(after))


def tell_of_return(section: Section, story: Story) -> None:
    for line in standings(story):
        section.notes.append(line)
    restarted_at, healthy_at = story.restarted_at, story.healthy_at
    section.check(healthy_at > 0, f"the server started again does not load within {LOAD_S:.0f} s")
    if not healthy_at:
        return
    section.add("started again until `/health` is 200", f"{healthy_at - restarted_at:.1f} s")
    loading = story.between(restarted_at, healthy_at)
    section.add("requests begun meanwhile", outcome(loading))
    section.add("attempts there meanwhile", attempts(story, restarted_at, healthy_at))
    back = story.between(healthy_at, story.ended_at)
    first = min((sample.first_at for sample in back if served(sample)), default=None)
    section.check(first is not None, "the server that came back is not used")
    if first is not None:
        section.add("`/health` 200 until its first token", f"{first - healthy_at:.1f} s")
    for start, end in SHARES_S:
        within = story.between(healthy_at + start, healthy_at + end)
        share = sum(served(sample) for sample in within) / max(len(within), 1)
        section.add(f"its share {start} to {end} s after `/health` 200",
                    f"{share:.0%} of {len(within)}")
    section.add("requests begun after `/health` 200", outcome(back))


def outcome(samples: list[Sample]) -> str:
    """How many, and what went wrong with how many."""
    errors = collections.Counter(sample.error for sample in samples if sample.error)
    kinds = "; ".join(f"{count} x `{error}`" for error, count in errors.most_common())
    return f"{len(samples)}, {errors.total()} failed" + (f": {kinds}" if kinds else "")


def first_tokens(samples: list[Sample]) -> str:
    times = [sample.first_token_ms for sample in samples if sample.first_at]
    return f"{percentile(times, 0.5):.0f} ms, {percentile(times, 0.99):.0f} ms"


def attempts(story: Story, start: float, end: float) -> str:
    """Attempts that failed within that time, by the metrics, and when the last was seen."""
    readings = [(at, failed_attempts(page)) for at, page in story.pages if at < end]
    base = max((count for at, count in readings if at < start), default=0)
    last = max((count for _, count in readings), default=0)
    if last == base:
        return "0"
    seen_at = min(at for at, count in readings if count == last)
    return f"{last - base:.0f}, the last {seen_at - start:.1f} s after"


def failed_attempts(page: Page) -> float:
    """Faults of the replica where the gateway counts them, else retries."""
    if page.has("spillway_replica_faults_total"):
        return page.total("spillway_replica_faults_total", replica=REPLICA)
    return page.total("spillway_retries_total")


def standings(story: Story) -> list[str]:
    """How the gateway's opinion of the replica changed, where it shows one."""
    lines, last = [], None
    for at, page in story.pages:
        now = next(
            (
                labels.get("admission")
                for name, labels, value in page.series
                if name == "spillway_replica_admission" and value == 1
                and labels.get("replica") == REPLICA
            ),
            None,
        )
        if now != last and last is not None:
            lines.append(f"`{REPLICA}` {last} → {now}: {moment(story, at)}")
        last = now
    return lines


def moment(story: Story, at: float) -> str:
    """That moment, told from the last thing that happened before it."""
    happened = [
        ("the kill", story.killed_at),
        ("the new start", story.restarted_at),
        ("`/health` 200", story.healthy_at),
    ]
    earlier = [(since, name) for name, since in happened if 0 < since <= at]
    since, name = max(earlier, default=(story.pages[0][0], "the begin"))
    return f"{at - since:.1f} s after {name}"
