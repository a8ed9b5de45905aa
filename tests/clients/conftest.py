"""Fixtures of the client tests. One world serves all of them; see world.py."""

import os
from collections.abc import Iterator

import openai
import pytest

from world import World, start_world

WORLD = pytest.StashKey[World]()
# Files that take longest. They begin first: one that began last would go on alone.
LONGEST = [
    "test_console.py",
    "test_incidents.py",
    "test_documents.py",
    "test_continuation.py",
    "test_openai_emulator.py",
    "test_field_servers.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


@pytest.fixture(scope="session")
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    world = start_world(tmp_path_factory.mktemp("world"))
    request.config.stash[WORLD] = world
    yield world
    codes = world.stop()
    # All of them end by themselves when asked to; what had to be killed was stuck.
    assert codes == dict.fromkeys(codes, 0)


@pytest.fixture
def client(world: World) -> Iterator[openai.OpenAI]:
    """The SDK, told not to hide errors behind retries."""
    with openai.OpenAI(
        base_url=f"{world.url}/v1", api_key="unused", max_retries=0, timeout=20
    ) as client:
        yield client


@pytest.fixture(params=["direct", "gateway"])
def sdk(world: World, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    """The SDK before the emulator itself, and before the node: both must say the same."""
    root = f"http://127.0.0.1:{world.tiny}" if request.param == "direct" else world.url
    with openai.OpenAI(
        base_url=f"{root}/v1", api_key="unused", max_retries=0, timeout=20
    ) as client:
        yield client


@pytest.fixture
def faulty(world: World) -> Iterator[World]:
    """The world, whose model `faulty` may be broken and is healed afterwards."""
    yield world
    world.set_fault({"kind": "none"})
    world.wait_until_welcome()


@pytest.fixture(autouse=True)
def of_this_world(request: pytest.FixtureRequest) -> None:
    """A test marked `one_node` has its reason why a load balancer before several nodes changes what it sees."""
    mark = request.node.get_closest_marker("one_node")
    if mark and os.environ.get("SPILLWAY_WORLD") == "balanced":
        pytest.skip(mark.args[0])


@pytest.fixture(autouse=True)
def all_still_run(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test during which a process died has failed, whatever it saw."""
    yield
    world = request.config.stash.get(WORLD, None)
    for process in world.processes if world else []:
        assert process.is_running(), f"{process.name} ended during this test"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo
) -> Iterator[None]:
    report = yield
    world = item.config.stash.get(WORLD, None)
    if report.failed and world:
        for process in world.processes:
            report.sections.append((f"log of {process.name}", process.tail()))
    return report
