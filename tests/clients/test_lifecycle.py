"""The node as a process: its config, its reload and its end, seen from outside."""

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from processes import Process, answers_200, free_ports
from world import FAULTY, World, config, spillway

PROMPT = [{"role": "user", "content": "Hello."}]


class Node:
    """A second node before the same replicas."""

    def __init__(self, world: World, folder: Path) -> None:
        ports = free_ports()
        self.own = World(folder, next(ports), next(ports), world.tiny, world.faulty, world.mlserver)
        self.config = folder / "spillway.toml"
        self.config.write_text(config(self.own))
        command = [spillway(), "run", "--config", str(self.config)]
        self.process = Process("second-node", command, folder)

    def is_ready(self) -> bool:
        return answers_200(f"http://127.0.0.1:{self.own.admin}/readyz")

    def models(self) -> list[str]:
        with urllib.request.urlopen(f"{self.own.url}/v1/models", timeout=5) as response:
            return [model["id"] for model in json.load(response)["data"]]


@pytest.fixture
def node(world: World, tmp_path: Path) -> Iterator[Node]:
    node = Node(world, tmp_path)
    try:
        node.process.wait_until("ready", node.is_ready)
        yield node
    finally:
        node.process.stop()


@pytest.mark.parametrize("model", FAULTY)
def test_a_node_that_is_told_to_stop_finishes_what_it_serves(node: Node, model: str) -> None:
    """Over each protocol that it can speak to the replica; nothing is broken here."""
    client = openai.OpenAI(base_url=f"{node.own.url}/v1", api_key="unused", max_retries=0)
    with client, client.chat.completions.create(
        model=model,
        messages=PROMPT,
        max_tokens=1_500,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    ) as stream:
        chunks = iter(stream)
        next(chunks)
        node.process.signal(signal.SIGTERM)
        node.process.wait_until("refusing new clients", lambda: not answers(node))
        assert node.process.is_running(), "the stream is not over yet"
        last = list(chunks)[-1]
    assert last.usage.completion_tokens == 1_500
    assert node.process.wait() == 0


def test_an_idle_node_stops_at_once(node: Node) -> None:
    assert node.process.stop() == 0


def test_a_changed_config_file_is_taken_up_without_a_restart(node: Node) -> None:
    assert "gpt-5" not in node.models()
    text = node.config.read_text().replace('"gpt-4o" = "tiny"', '"gpt-5" = "tiny"')
    node.config.write_text(text)
    node.process.wait_until("serving the new alias", lambda: "gpt-5" in node.models())
    assert "gpt-4o" not in node.models()


def test_a_broken_config_file_leaves_the_node_as_it_was(node: Node) -> None:
    before = node.models()
    node.config.write_text(node.config.read_text() + "\nnonsense = [\n")
    node.process.signal(signal.SIGHUP)
    node.process.wait_until(
        "complaining", lambda: "nonsense" in node.process.tail() or "ERROR" in node.process.tail()
    )
    assert node.models() == before
    assert node.is_ready()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[node]\nnane = 'x'\n", "nane"),
        ("[[listener]]\naddress = 'nowhere'\n", "address"),
        ("[[listener]\n", "spillway.toml:1"),
    ],
)
def test_a_bad_config_ends_the_node_before_it_listens(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "spillway.toml"
    path.write_text(text)
    for command in (["run", "--config", str(path)], ["config", "check", str(path)]):
        done = subprocess.run(
            [spillway(), *command], capture_output=True, text=True, timeout=10, check=False
        )
        assert done.returncode == 64, done.stderr
        assert complaint in done.stdout + done.stderr


def test_a_good_config_passes_its_check(world: World) -> None:
    path = world.folder / "spillway.toml"
    done = subprocess.run(
        [spillway(), "config", "check", str(path), "--json"], capture_output=True, timeout=10
    )
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)


def answers(node: Node) -> bool:
    return answers_200(f"{node.own.url}/livez")
