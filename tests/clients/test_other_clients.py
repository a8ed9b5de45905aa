"""litellm, llama-index and OpenAI's library for Node.js: all that they can do at the emulator, through the node."""

import shutil

import pytest

from others import Failures, NotInstalled, node_client, python_clients
from world import World

WAYS = ["direct", "gateway"]
# The first of these tests installs what `cargo xtask test` has not.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def python_failures(world: World) -> dict[str, Failures]:
    return python_clients(world)


@pytest.fixture(scope="module")
def node_failures(world: World) -> Failures:
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("Node.js and npm are not installed")
    try:
        return node_client(world)
    except NotInstalled as error:
        # Python's packages come from where the suite's own do; npm's registry may be out of reach.
        pytest.skip(f"cannot install: {error}")


@pytest.mark.parametrize("way", WAYS)
def test_litellm_is_served(python_failures: dict[str, Failures], way: str) -> None:
    assert python_failures["litellm_checks"][way] == {}


@pytest.mark.parametrize("way", WAYS)
def test_llama_index_is_served(python_failures: dict[str, Failures], way: str) -> None:
    assert python_failures["llama_index_checks"][way] == {}


@pytest.mark.parametrize("way", WAYS)
def test_openai_for_node_is_served(node_failures: Failures, way: str) -> None:
    assert node_failures[way] == {}
