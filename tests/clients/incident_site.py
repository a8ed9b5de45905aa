"""Three regions of one cluster in which something goes wrong, and two ways to look at them: the console, the commands."""

import contextlib
import json
import os
import socket
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

PATIENCE_S = 120.0
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
eject_ms = 10000                  # long enough to be seen on a busy machine
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

# What a name server knows.
DISCOVERY = """
[[discovery]]
name = "workers"
dns = "workers.test:{port}"
resolver = "127.0.0.1:{resolver}"
replica = {{ url = "http://", models = ["tiny"] }}
"""


class NameServer:
    """A name server that has one address for all names, until it hangs."""

    def __init__(self) -> None:
        self.is_hanging = False
        self._socket = socket.socket(type=socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                question, client = self._socket.recvfrom(512)
                if not self.is_hanging:
                    self._socket.sendto(self._answer(question), client)

    @staticmethod
    def _answer(message: bytes) -> bytes:
        # The question begins after the header, and a name ends with an empty label (RFC 1035).
        end = message.index(0, 12) + 5
        question = message[12:end]
        is_ipv4 = question[-4:] == b"\0\1\0\1"
        record = b"\xc0\x0c" + question[-4:] + (1).to_bytes(4) + b"\0\4" + bytes([127, 0, 0, 1])
        header = message[:2] + b"\x84\0" + b"\0\1" + (b"\0\1" if is_ipv4 else b"\0\0") + bytes(4)
        return header + question + (record if is_ipv4 else b"")

    def stop(self) -> None:
        self._socket.close()


class Node:
    """A node, and the commands against it."""

    def __init__(self, name: str, folder: Path, ports: Iterator[int]) -> None:
        self.name, self.region, self.folder = name, REGIONS[name], folder
        self.gateway, self.admin, self.link = next(ports), next(ports), next(ports)
        self.process: Process | None = None
        # What is added to its clock, as libfaketime reads it.
        self.clock = folder / f"{name}.clock"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.admin}"

    @property
    def data(self) -> Path:
        return self.folder / f"{self.name}.data"

    def configure(self, others: list["Node"], replicas: list[int], resolver: int) -> None:
        place = {"name": self.name, "region": self.region}
        text = NODE.format(**place, gateway=self.gateway, admin=self.admin, link=self.link)
        text += "".join(PEER.format(name=it.name, region=it.region, link=it.link) for it in others)
        names = (f"{self.name}-gpu-{letter}" for letter in "abc")
        if self.name == "ap":
            text += DISCOVERY.format(port=replicas[0], resolver=resolver)
        else:
            text += "".join(REPLICA.format(name=name, port=port) for name, port in zip(names, replicas, strict=False))
        (self.folder / f"{self.name}.toml").write_text(text)
        certify(self.folder, "node", "--region", self.region, "--node", self.name)

    def start(self) -> None:
        self.set_clock("+0")
        command = [spillway(), "run", "--config", f"{self.name}.toml"]
        self.process = Process(self.name, command, self.folder, self.faketime() if self.name == "ap" else {})

    def set_clock(self, ahead: str) -> None:
        """Sets its clock wrong by this time, such as `+2h`. Only `ap` looks at it."""
        self.clock.write_text(f"{ahead}\n")

    def faketime(self) -> dict[str, str]:
        """Environment of a process whose clock is set by a file."""
        if not (library := faketime()):
            return {}
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

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

    def replicas(self) -> list[dict]:
        """Its replicas, as the command shows them."""
        return json.loads(self.text("replicas", "--json"))

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
        regions = json.loads(self.run("get", "regions", "--json").stdout or "[]")
        rows = regions if isinstance(regions, list) else regions.get("items", [])
        heard = [it for it in rows if (it.get("world") or {}).get("is_heard")]
        return self.sentence().startswith("healthy: ") and len(heard) == len(REGIONS)

    def ask(self, key: str, *, is_stream: bool = True) -> int:
        """Sends a chat and returns the status of its reply."""
        body = {"model": MODEL, "max_tokens": 4, "stream": is_stream}
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


def faketime() -> Path | None:
    """The library that sets a process's clock wrong, if it is installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


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
        self.name_server = NameServer()
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
        # Slow, so that the times of a busy machine are small beside those of a slow replica.
        command += [f"--model={MODEL}", "--profile", "a100", "--seed", "7", "--time-scale", "3"]
        self.emulator = Process("emulator", command, self.folder)
        certify(self.folder, "init", "--cluster", "incidents")
        rest = iter(row)
        for name, node in self.nodes.items():
            others = [it for it in self.nodes.values() if it is not node]
            node.configure(others, [next(rest) for _ in range(REPLICAS[name])], self.name_server.port)
        self.has_disk = small_disk(self.ap.data)
        for node in self.nodes.values():
            node.start()
        for node in self.nodes.values():
            node.process.wait_until("whole", lambda it=node: answers_200(f"{it.url}/readyz") and it.is_whole())
        for tenant in ("acme", "initech"):
            self.us.text("apply", "tenant", tenant, "{}")
        self.keys = {it: self.us.text("keys", "create", "--tenant", it, "--name", f"{it}-1").split()[-1] for it in ("acme", "initech")}

    def stop(self) -> None:
        for process in [*(node.process for node in self.nodes.values()), self.emulator]:
            if process:
                process.stop()
        self.name_server.stop()
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

    def heal(self) -> None:
        """Takes replicas that were ejected out and in again, as operators do after a repair: what was before is over."""
        for node in self.nodes.values():
            for replica in node.replicas():
                if replica["ejections"]:
                    node.text("drain", f"{node.region}/{replica['name']}")
                    node.text("undrain", f"{node.region}/{replica['name']}")

    @contextmanager
    def load(self, node: Node, tenant: str, callers: int, pause_s: float, *, is_mixed: bool = False) -> Iterator[None]:
        """Has so many callers ask a node, each with a pause after an answer; of mixed ones half want whole replies."""
        is_over = threading.Event()

        def call(*, is_stream: bool) -> None:
            while not is_over.wait(pause_s):
                with contextlib.suppress(OSError):
                    node.ask(self.keys[tenant], is_stream=is_stream)

        threads = [
            threading.Thread(target=call, kwargs={"is_stream": not is_mixed or number % 2 == 0}) for number in range(callers)
        ]
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
