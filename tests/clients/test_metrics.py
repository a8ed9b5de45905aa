"""Metrics as Prometheus reads them, with the strict parser of its own Python library."""

import urllib.request

import openai
import pytest
from prometheus_client import parser as classic
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from world import World

PROMPT = [{"role": "user", "content": "Hello."}]


def samples(port: int) -> dict[tuple[str, frozenset], float]:
    """Every sample of a metrics page by name and labels; fails on a page that breaks the format."""
    accept = {"accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers=accept)
    with urllib.request.urlopen(asked, timeout=5) as response:
        assert response.headers["content-type"].startswith("application/openmetrics-text")
        page = response.read().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def total(port: int, name: str, **labels: str) -> float:
    """The sum of all samples of `name` that have `labels`."""
    return sum(
        value
        for (sample, its_labels), value in samples(port).items()
        if sample == name and labels.items() <= dict(its_labels).items()
    )


def test_requests_are_counted_by_model_and_status(world: World, client: openai.OpenAI) -> None:
    def served(**labels: str) -> float:
        return total(world.admin, "spillway_requests_total", **labels)

    before = served(model="tiny", status="200")
    for _ in range(3):
        client.chat.completions.create(model="tiny", messages=PROMPT, max_tokens=1)
    # A request is counted after its reply, on another task.
    world.process("node").wait_until(
        "counting", lambda: served(model="tiny", status="200") == before + 3, within_s=5
    )


def test_a_model_that_does_not_exist_makes_no_new_series(
    world: World, client: openai.OpenAI
) -> None:
    """What clients invent must not grow the page."""
    for number in range(20):
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model=f"invented-{number}", messages=PROMPT)
    world.process("node").wait_until(
        "counting",
        lambda: total(world.admin, "spillway_requests_total", status="404") >= 20,
        within_s=5,
    )
    assert "invented" not in repr(samples(world.admin))


def test_nothing_is_in_flight_when_nobody_asks(world: World) -> None:
    assert "spillway_replica_in_flight" in {name for name, _ in samples(world.admin)}
    world.process("node").wait_until(
        "idle", lambda: total(world.admin, "spillway_replica_in_flight") == 0, within_s=10
    )


def test_the_classic_format_has_the_same_samples(world: World, client: openai.OpenAI) -> None:
    """The parser for the format that agents without OpenMetrics read."""
    client.chat.completions.create(model="tiny", messages=PROMPT, max_tokens=1)
    asked = urllib.request.Request(
        f"http://127.0.0.1:{world.admin}/metrics", headers={"accept": "text/plain;version=0.0.4"}
    )
    with urllib.request.urlopen(asked, timeout=5) as response:
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = list(classic.text_string_to_metric_families(response.read().decode()))
    assert {family.type for family in families} == {"counter", "gauge", "histogram"}
    names = {sample.name for family in families for sample in family.samples}
    assert {name for name, _ in samples(world.admin)} <= names


def test_the_emulators_page_can_be_read_too(world: World) -> None:
    assert samples(world.tiny)
