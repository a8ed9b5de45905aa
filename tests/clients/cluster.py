"""Two nodes of one cluster, each in a region of its own, before the emulator's replicas."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from processes import Process, answers_200, free_ports
from world import World, spillway

NODE = """
[node]
name = "{name}"
region = "region-{name}"

[[listener]]
address = "127.0.0.1:{gateway}"
auth = "keys"

[admin]
address = "127.0.0.1:{admin}"

[cluster]
id = "clients"
address = "127.0.0.1:{link}"
ca = "certs/ca.pem"
certificate = "certs/{name}.region-{name}.pem"
key = "certs/{name}.region-{name}-key.pem"
prefix_key = "certs/prefix.key"
data = "{name}.data"

[[replica]]
name = "{name}-tiny"
url = "http://127.0.0.1:{replica}"
protocol = "h2c"
models = ["tiny", "identity"]
"""

PEER = """
[[peer]]
name = "{name}"
region = "region-{name}"
address = "127.0.0.1:{link}"

[[region]]
name = "region-{name}"
rtt_ms = 1
"""


class Node:
    """One node, and the command line against it."""

    def __init__(self, name: str, folder: Path, ports: Iterator[int]) -> None:
        self.name = name
        self.folder = folder
        self.gateway, self.admin, self.link = next(ports), next(ports), next(ports)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway}"

    def start(self, other: "Node", replica: int) -> Process:
        text = NODE.format(
            name=self.name,
            gateway=self.gateway,
            admin=self.admin,
            link=self.link,
            replica=replica,
        ) + PEER.format(name=other.name, link=other.link)
        path = self.folder / f"{self.name}.toml"
        path.write_text(text)
        return Process(self.name, [spillway(), "run", "--config", str(path)], self.folder)

    def ask(self, *arguments: str) -> dict:
        """What `spillway` answers with these arguments, asked of this node."""
        command = [spillway(), *arguments, "--json", "--admin", f"http://127.0.0.1:{self.admin}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
        return json.loads(done.stdout)

    def is_ready(self) -> bool:
        return answers_200(f"http://127.0.0.1:{self.admin}/readyz")

    def is_in_its_cluster(self) -> bool:
        url = f"http://127.0.0.1:{self.admin}/v1/nodes?consistency=linearizable"
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                return len(json.load(response)["items"]) == 2
        except urllib.error.HTTPError as error:
            # No leader yet.
            error.close()
            return False


class Cluster:
    """Both nodes. Ends them with `stop`."""

    def __init__(self, world: World, folder: Path) -> None:
        certify(folder, "init", "--cluster", "clients")
        ports = free_ports()
        self.first, self.second = (Node(name, folder, ports) for name in ("one", "two"))
        self.processes: list[Process] = []
        try:
            for node, other in [(self.first, self.second), (self.second, self.first)]:
                certify(folder, "node", "--region", f"region-{node.name}", "--node", node.name)
                self.processes.append(node.start(other, world.tiny))
            nodes = [self.first, self.second]
            for node, process in zip(nodes, self.processes, strict=True):
                process.wait_until("ready", node.is_ready)
                process.wait_until("in its cluster", node.is_in_its_cluster)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> list[int]:
        return [process.stop() for process in self.processes]


def certify(folder: Path, *arguments: str) -> None:
    command = [spillway(), "certs", *arguments, "--dir", "certs"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=30)
