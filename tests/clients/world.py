"""What the tests talk to: one node before two emulators and a real MLServer.

With SPILLWAY_WORLD=balanced the same replicas belong to three regions, and a load balancer before five nodes takes the
place of the one node: see balanced.py.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from balanced import start_balanced
from processes import Process, answers_200, consecutive, free_ports, held

HERE = Path(__file__).parent
REPLICAS = 4
# One model server under two names: the node speaks HTTP/1.1 to the first and HTTP/2 to the second.
FAULTY = ["faulty", "faulty-h2"]
# Of a replica that has room for all requests of a test.
ROOM = "connections_max = 256"
SHORT = {"role": "user", "content": "hi"}
# The same server once more, with room for one request at a time; and a server that is not there.
NARROW, GONE = "narrow", "gone"
BODY_BYTES_MAX = 4 << 20
IDLE_MS = 1_500

NODE = """
[node]
name = "{name}"
region = "{region}"
expose_routing = true
# Tests ask by chance whether a node is ready; nobody has to see that it ends.
drain_notice_ms = 0

[[listener]]
address = "127.0.0.1:{gateway}"

# Who finds no place is told so at once.
[spill]
queue_max = 0

[admin]
address = "127.0.0.1:{admin}"

[limits]
body_bytes_max = {body_bytes_max}

[timeouts]
idle_ms = {idle_ms}

[aliases]
"gpt-4o" = "tiny"

# Sessions by header, with a policy that spreads requests by itself.
[[route]]
name = "sessions"
models = ["identity"]
policy = "random"
session = {{ header = "x-session" }}

[[route]]
name = "default"
"""

REPLICA = """
[[replica]]
name = "{name}"
url = "http://127.0.0.1:{port}"
models = {models}
protocol = "{protocol}"
{lines}
"""


@dataclass
class World:
    """Ports and processes of one session."""

    folder: Path
    gateway: int = 0
    admin: int = 0
    tiny: int = 0
    faulty: int = 0
    mlserver: int = 0
    mlserver_grpc: int = 0
    gone: int = 0
    # Holds that port, at which nobody listens: a server there would answer for a replica.
    gone_held: socket.socket | None = None
    # Ports of the nodes behind a load balancer, by name; none without one.
    nodes: dict[str, int] = field(default_factory=dict)
    # Admin ports of all nodes.
    admins: list[int] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway}"

    def start(self, name: str, command: list[str]) -> Process:
        process = Process(name, command, self.folder)
        self.processes.append(process)
        return process

    def start_node(self, name: str, config: Path) -> Process:
        return self.start(name, [spillway(), "run", "--config", str(config)])

    def certify(self, *arguments: str) -> None:
        """Makes certificates for the nodes of a cluster."""
        command = [spillway(), "certs", *arguments, "--dir", "certs"]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, timeout=30)

    def process(self, name: str) -> Process:
        return next(process for process in self.processes if process.name == name)

    def stop(self) -> dict[str, int]:
        """Ends everything, the node first; the exit code of each by name."""
        codes = {process.name: process.stop() for process in reversed(self.processes)}
        if self.gone_held:
            self.gone_held.close()
        return codes

    def set_fault(self, fault: dict) -> None:
        """Breaks, or with `{"kind": "none"}` heals, the replica of the model `faulty`."""
        # Asked of its sibling, which still listens when the broken one does not.
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.faulty + 1}/emulator/fault",
            data=json.dumps({"replica": 0, "fault": fault}).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=5) as response:
            assert json.load(response)["fault"]["kind"] == fault["kind"]


    def is_kept_away(self, model: str, url: str | None = None) -> bool:
        """Whether a client gets no request to the model's replica, which has asked it to wait."""
        body = json.dumps({"model": model, "max_tokens": 1, "messages": [SHORT]}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{url or self.url}/v1/chat/completions", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=10):
                return False
        except urllib.error.HTTPError as error:
            # In another region than the replica's the whole region is left alone.
            return bool(self.nodes) or error.headers.get("x-spillway-shed-reason") == "replica_busy"

    def wait_until_welcome(self) -> None:
        """Until no replica is left alone since it asked for that, by all or by this client."""
        due = time.monotonic() + 10
        urls = [f"http://127.0.0.1:{port}" for port in self.nodes.values()] or [self.url]
        while any('admission="busy"' in metrics(admin) for admin in self.admins) or any(
            self.is_kept_away(model, url) for url in urls for model in FAULTY
        ):
            assert time.monotonic() < due, "a replica is still left alone"
            time.sleep(0.02)  # wait: until it is looked at again


def metrics(admin: int, accept: str = "*/*") -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{admin}/metrics", headers={"accept": accept})
    with urllib.request.urlopen(request, timeout=5) as response:
        return response.read().decode()


def start_world(folder: Path) -> World:
    """Starts everything and returns when the node is ready."""
    world = World(folder)
    try:
        fill(world, free_ports())
    except BaseException:
        world.stop()
        raise
    return world


def fill(world: World, ports: Iterator[int]) -> None:
    world.gateway, world.admin = next(ports), next(ports)
    world.gone_held = held(ports)
    world.gone = world.gone_held.getsockname()[1]
    tiny, broken = consecutive(ports, REPLICAS), consecutive(ports, 2)
    world.tiny, world.faulty = tiny[0], broken[0]
    mlserver = start_mlserver(world, ports)
    emulators = [
        start_emulator(world, "emulator", tiny, ["tiny", "identity"]),
        start_emulator(world, "faulty", broken, [*FAULTY, NARROW]),
    ]
    for process, port in zip(emulators, [tiny[-1], broken[-1]], strict=True):
        models = f"http://127.0.0.1:{port}/v1/models"
        process.wait_until("listening", lambda models=models: answers_200(models))
    ready = f"http://127.0.0.1:{world.mlserver}/v2/models/doubler/ready"
    mlserver.wait_until("serving the model", lambda: answers_200(ready))
    if os.environ.get("SPILLWAY_WORLD") == "balanced":
        start_balanced(world, ports, head, replicas(world))
        return
    world.admins = [world.admin]
    path = world.folder / "spillway.toml"
    path.write_text(config(world))
    node = world.start_node("node", path)
    node.wait_until("ready", lambda: answers_200(f"http://127.0.0.1:{world.admin}/readyz"))


def config(world: World) -> str:
    """The node's config file."""
    return head("clients", "here", world.gateway, world.admin) + "".join(replicas(world))


def head(name: str, region: str, gateway: int, admin: int) -> str:
    """The part of a node's config file that is no replica."""
    return NODE.format(
        name=name,
        region=region,
        gateway=gateway,
        admin=admin,
        body_bytes_max=BODY_BYTES_MAX,
        idle_ms=IDLE_MS,
    )


def replicas(world: World) -> list[str]:
    """The replicas in a config file."""
    # Both protocols, so that every test of `tiny` passes over both.
    protocols = ["http1", "h2c"]
    # What a replica takes at once is known: while it is a guess, requests of other regions begin slowly, and
    # without a queue a burst of them is refused.
    tables = [
        replica(f"tiny-{index}", world.tiny + index, ["tiny", "identity"], protocols[index % 2], ROOM)
        for index in range(REPLICAS)
    ]
    for name, protocol in zip(FAULTY, protocols, strict=True):
        tables.append(replica(name, world.faulty, [name], protocol))
    tables.append(replica(NARROW, world.faulty, [NARROW], "h2c", "connections_max = 1"))
    if world.gone:
        tables.append(replica(GONE, world.gone, [GONE], "h2c"))
    grpc = f'grpc_url = "http://127.0.0.1:{world.mlserver_grpc}"' if world.mlserver_grpc else ""
    tables.append(replica("mlserver", world.mlserver, ["doubler"], "http1", grpc))
    return tables


def replica(name: str, port: int, models: list[str], protocol: str, lines: str = "") -> str:
    return REPLICA.format(
        name=name, port=port, models=json.dumps(models), protocol=protocol, lines=lines
    )


def start_emulator(world: World, name: str, ports: list[int], models: list[str]) -> Process:
    command = [spillway(), "emulate", "--listen", f"127.0.0.1:{ports[0]}"]
    command += ["--replicas", str(len(ports)), *(f"--model={model}" for model in models)]
    return world.start(name, [*command, "--profile", "l4", "--time-scale", "0.05", "--seed", "7"])


def start_mlserver(world: World, ports: Iterator[int], **more: str) -> Process:
    """Starts MLServer, with more settings of its own."""
    world.mlserver, world.mlserver_grpc = next(ports), next(ports)
    models = world.folder / "models"
    shutil.copytree(HERE / "mlserver_models", models)
    settings = {
        "host": "127.0.0.1",
        "http_port": world.mlserver,
        "grpc_port": world.mlserver_grpc,
        "metrics_port": next(ports),
        "parallel_workers": 0,
        # It cannot compress a stream, and the node must not need it to.
        "gzip_enabled": False,
        **more,
    }
    (models / "settings.json").write_text(json.dumps(settings))
    mlserver = Path(sys.executable).with_name("mlserver")
    return world.start("mlserver", [str(mlserver), "start", str(models)])


def spillway() -> str:
    """The binary under test."""
    default = HERE.parent.parent / "target" / "debug" / "spillway"
    path = Path(os.environ.get("SPILLWAY_BIN", default)).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"{path}: build it, or set SPILLWAY_BIN")
    return str(path)
