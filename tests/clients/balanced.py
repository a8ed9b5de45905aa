"""Three nodes in three regions and two edge nodes behind a load balancer that takes turns."""

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from processes import answers_200

if TYPE_CHECKING:
    from world import World

PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
# Node and region. The regions of edges have no replicas.
NODES = {"one": "north", "two": "east", "three": "west", "edge-1": "edge", "edge-2": "edge"}
EDGES = 2
# A busy machine forms a cluster of five slowly.
FORMED_S = 45.0

CLUSTER = """
[cluster]
id = "clients"
address = "127.0.0.1:{link}"
ca = "certs/ca.pem"
certificate = "certs/{name}.{region}.pem"
key = "certs/{name}.{region}-key.pem"
prefix_key = "certs/prefix.key"
data = "{name}.data"
# A machine that is busy for a second is no reason to call another node silent.
silence_ms = 3000
"""

PEER = """
[[peer]]
name = "{name}"
region = "{region}"
address = "127.0.0.1:{link}"
"""

BALANCER = """
global
    maxconn 2000

defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s

frontend clients
    bind 127.0.0.1:{gateway}
    default_backend nodes

# Each request goes to the next node, those of one connection too.
backend nodes
    balance roundrobin
{servers}
"""


def start_balanced(
    world: "World", ports: Iterator[int], head: Callable[..., str], replicas: list[str]
) -> None:
    """Starts the nodes, with `head` for the part of their configs that is no replica, and the balancer."""
    found = shutil.which("haproxy", path=PATH)
    if not found:
        pytest.skip("haproxy is not installed")
    world.certify("init", "--cluster", "clients")
    links, admins = ({name: next(ports) for name in NODES} for _ in range(2))
    world.nodes = {name: next(ports) for name in NODES}
    world.admin, world.admins = admins["one"], list(admins.values())
    started = []
    for index, (name, region) in enumerate(NODES.items()):
        world.certify("node", "--region", region, "--node", name)
        config = head(name, region, world.nodes[name], admins[name])
        config += CLUSTER.format(name=name, region=region, link=links[name])
        # Each replica belongs to one region.
        config += "".join(replicas[index :: len(NODES) - EDGES] if region != "edge" else [])
        for other, link in links.items():
            if other != name:
                config += PEER.format(name=other, region=NODES[other], link=link)
        path = world.folder / f"{name}.toml"
        path.write_text(config)
        started.append(world.start_node(name, path))
    for process, name in zip(started, NODES, strict=True):
        admin = f"http://127.0.0.1:{admins[name]}"
        process.wait_until("in its cluster", lambda admin=admin: is_formed(admin), FORMED_S)
        process.wait_until("ready", lambda admin=admin: answers_200(f"{admin}/readyz"))
    servers = [f"    server {name} 127.0.0.1:{port}" for name, port in world.nodes.items()]
    path = world.folder / "haproxy.cfg"
    path.write_text(BALANCER.format(gateway=world.gateway, servers="\n".join(servers)))
    # As its master, it ends like any program that is asked to.
    balancer = world.start("balancer", [found, "-W", "-db", "-f", str(path)])
    balancer.wait_until("listening", lambda: answers_200(f"{world.url}/v1/models"))


def is_formed(admin: str) -> bool:
    """Whether the node knows all others, and can reach all regions with replicas but its own."""
    try:
        with urllib.request.urlopen(f"{admin}/v1/nodes", timeout=2) as response:
            if len(json.load(response)["items"]) != len(NODES):
                return False
        with urllib.request.urlopen(f"{admin}/metrics", timeout=2) as response:
            lines = response.read().decode().splitlines()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    reachable = [line for line in lines if line.startswith("spillway_region_reachable{")]
    return len(reachable) == len(set(NODES.values())) - 1 and all(
        line.endswith(" 1") for line in reachable
    )
