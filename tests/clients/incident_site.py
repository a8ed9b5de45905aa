"""Three regions of one cluster in which something goes wrong, and two ways to look at them: the console, the commands."""

import contextlib
import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster import certify
from processes import Process, answers_200, consecutive, free_ports
from world import spillway

PATIENCE_S = 60.0
# Nodes and their regions; the first one has replicas enough to be compared with each other.
REGIONS = {"us": "us-east-1", "eu": "eu-central-1", "ap": "ap-northeast-1"}
REPLICAS = {"us": 3, "eu": 2, "ap": 1}
MODEL = "tiny"
# Size of the disk that becomes full.
DISK_BYTES = 8 << 20

NODE = """
[node]
name = "{name}"
region = "{region}"

[[listener]]
address = "127.0.0.1:{gateway}"
auth = "keys"

[admin]
address = "127.0.0.1:{admin}"

[cluster]
id = "incidents"
address = "127.0.0.1:{link}"
ca = "certs/ca.pem"
certificate = "certs/{name}.{region}.pem"
key = "certs/{name}.{region}-key.pem"
prefix_key = "certs/prefix.key"
data = "{name}.data"

[health]
eject_ms = 2000                   # back soon when it is well again
eject_max_ms = 2000
slow_start_ms = 5000
"""

PEER = """
[[peer]]
name = "{name}"
region = "{region}"
address = "127.0.0.1:{link}"
"""

REPLICA = """
[[replica]]
name = "{name}"
url = "http://127.0.0.1:{port}"
models = ["tiny"]
"""


class Node:
    """A node, and the commands against it."""

    def __init__(self, name: str, folder: Path, ports: Iterator[int]) -> None:
        self.name, self.region, self.folder = name, REGIONS[name], folder
        self.gateway, self.admin, self.link = next(ports), next(ports), next(ports)
        self.process: Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.admin}"

    @property
    def data(self) -> Path:
        return self.folder / f"{self.name}.data"

    def configure(self, others: list["Node"], replicas: list[int]) -> None:
        place = {"name": self.name, "region": self.region}
        text = NODE.format(**place, gateway=self.gateway, admin=self.admin, link=self.link)
        text += "".join(PEER.format(name=it.name, region=it.region, link=it.link) for it in others)
        names = (f"{self.name}-gpu-{letter}" for letter in "abc")
        text += "".join(REPLICA.format(name=name, port=port) for name, port in zip(names, replicas, strict=False))
        (self.folder / f"{self.name}.toml").write_text(text)
        certify(self.folder, "node", "--region", self.region, "--node", self.name)

    def start(self) -> None:
        self.process = Process(self.name, [spillway(), "run", "--config", f"{self.name}.toml"], self.folder)

    def run(self, *arguments: str) -> subprocess.CompletedProcess:
        """Runs a command against this node."""
        command = [spillway(), *arguments, "--admin", self.url]
        # As wide as all columns.
        environment = {**os.environ, "COLUMNS": "250"}
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )

    def text(self, *arguments: str) -> str:
        """Runs a command against this node that has to succeed, and returns what it prints."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def sentence(self) -> str:
        """The first line of its status."""
        return self.run("status").stdout.partition("\n")[0]

    def read(self, path: str) -> str:
        """What the admin listener answers."""
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def put(self, path: str, record: dict) -> None:
        """Writes a record, quicker than by a command."""
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", json.dumps(record).encode(), headers, method="PUT")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            answer.read()

    def is_whole(self) -> bool:
        """Whether it is well, and has all nodes and regions."""
        regions = json.loads(self.run("regions", "--json").stdout or "[]")
        rows = regions if isinstance(regions, list) else regions.get("items", [])
        heard = [it for it in rows if (it.get("world") or {}).get("is_heard")]
        return self.sentence().startswith("healthy: ") and len(heard) == len(REGIONS)

    def ask(self, key: str) -> int:
        """Sends a chat and returns the status of its reply."""
        body = {"model": MODEL, "max_tokens": 4, "stream": True}
        body["messages"] = [{"role": "user", "content": "What is wrong here? " * 8}]
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        url = f"http://127.0.0.1:{self.gateway}/v1/chat/completions"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
                reply.read()
                return reply.status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code


class Site:
    """Three nodes, their replicas, and the keys of two tenants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ports = free_ports()
        row = consecutive(ports, sum(REPLICAS.values()))
        self.replicas = row[0]
        self.nodes = {name: Node(name, folder, ports) for name in REGIONS}
        self.emulator: Process | None = None
        self.has_disk = False
        try:
            self.start(row)
        except BaseException:
            self.stop()
            raise

    def __getattr__(self, name: str) -> Node:
        try:
            return self.__dict__["nodes"][name]
        except KeyError:
            raise AttributeError(name) from None

    def start(self, row: list[int]) -> None:
        command = [spillway(), "emulate", "--listen", f"127.0.0.1:{row[0]}", "--replicas", str(len(row))]
        command += [f"--model={MODEL}", "--profile", "a100", "--seed", "7"]
        self.emulator = Process("emulator", command, self.folder)
        certify(self.folder, "init", "--cluster", "incidents")
        rest = iter(row)
        for name, node in self.nodes.items():
            others = [it for it in self.nodes.values() if it is not node]
            node.configure(others, [next(rest) for _ in range(REPLICAS[name])])
        self.has_disk = small_disk(self.ap.data)
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            node.process.wait_until("whole", lambda it=node: answers_200(f"{it.url}/readyz") and it.is_whole())
        for tenant in ("acme", "initech"):
            self.us.text("tenants", "put", tenant, "{}")
        self.keys = {it: self.us.text("keys", "create", "--tenant", it, "--name", f"{it}-1").split()[-1] for it in ("acme", "initech")}

    def stop(self) -> None:
        for process in [*(node.process for node in self.nodes.values()), self.emulator]:
            if process:
                process.stop()
        if self.has_disk:
            subprocess.run(["umount", str(self.ap.data)], check=True, timeout=PATIENCE_S)

    @contextmanager
    def fault(self, replica: int, fault: dict) -> Iterator[None]:
        """Breaks a replica for a while."""
        self.set_fault(replica, fault)
        try:
            yield
        finally:
            self.set_fault(replica, {"kind": "none"})

    def set_fault(self, replica: int, fault: dict) -> None:
        body = json.dumps({"fault": fault, "replica": replica}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.replicas}/emulator/fault", body)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            answer.read()

    @contextmanager
    def load(self, node: Node, tenant: str, callers: int, pause_s: float) -> Iterator[None]:
        """Has so many callers ask a node, each with a pause after an answer."""
        is_over = threading.Event()

        def call() -> None:
            while not is_over.wait(pause_s):
                with contextlib.suppress(OSError):
                    node.ask(self.keys[tenant])

        threads = [threading.Thread(target=call) for _ in range(callers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            for thread in threads:
                thread.join(timeout=PATIENCE_S)


def small_disk(folder: Path) -> bool:
    """Mounts a small file system at a folder; False if this process may not."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(folder)]
    with contextlib.suppress(FileNotFoundError):
        return subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 0
    return False


def eventually(read: Callable[[], str], *wanted: str) -> str:
    """Reads until what is read has all of these texts, and returns it."""
    deadline = time.monotonic() + PATIENCE_S
    while not all(it in (last := read()) for it in wanted):
        assert time.monotonic() < deadline, f"no {wanted} in:\n{last}"
        time.sleep(0.1)  # wait: until it is looked at again
    return last
