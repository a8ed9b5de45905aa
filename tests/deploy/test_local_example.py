"""`terraform/examples/local` for real: it serves, notices what dies, and leaves nothing."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from itertools import combinations, islice
from pathlib import Path

import pytest

from needs import ROOT, spillway
from polling import free_hundreds, is_free, wait_until
from terraform import Terraform

EXAMPLE = ROOT / "terraform/examples/local"
REGIONS = {"us-east-1": "US", "eu-central-1": "DE", "ap-northeast-1": "JP"}
WHAT_STARTS = ("node", "replicas")

pytestmark = pytest.mark.timeout(600)


class Example:
    """The example in a folder of its own, and what it started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "local"
        shutil.copytree(
            EXAMPLE,
            self.folder,
            ignore=shutil.ignore_patterns(".terraform*", "terraform.tfstate*", "state"),
        )
        self.ports = free_hundreds()
        regions = {
            name: {"port": port, "country": country}
            for (name, country), port in zip(REGIONS.items(), self.ports, strict=False)
        }
        self.terraform = Terraform(self.folder, {"binary": spillway(), "regions": regions})

    @property
    def regions(self) -> dict:
        return self.terraform.variables["regions"]

    def place(self, region: str) -> Path:
        return self.folder / "state/regions" / region

    def mark(self, region: str, what: str) -> Path:
        return self.place(region) / f"{what}.mark"

    def pid(self, region: str, what: str = "node") -> int:
        return int(self.mark(region, what).read_text().split()[1])

    def pids(self) -> dict[str, int]:
        return {
            f"{region}/{what}": self.pid(region, what)
            for region in self.regions
            for what in WHAT_STARTS
        }

    def processes(self) -> list[int]:
        """Ids of all that runs of it, by the entry of the environment that names the folder."""
        entry = f"SPILLWAY_LOCAL_PROCESS={self.folder}/state/regions/".encode()
        return [
            int(process.name)
            for process in Path("/proc").iterdir()
            if process.name.isdigit() and entry in environment(process)
        ]

    def ports_in_use(self) -> list[str]:
        tcp = [
            region["port"] + offset for region in self.regions.values() for offset in (0, 1, 10, 11)
        ]
        udp = [region["port"] + 2 for region in self.regions.values()]
        return [f"tcp {port}" for port in tcp if not is_free(port)] + [
            f"udp {port}" for port in udp if not is_free(port, socket.SOCK_DGRAM)
        ]

    def kill(self, region: str, what: str) -> None:
        pid = self.pid(region, what)
        os.kill(pid, signal.SIGKILL)
        wait_until(f"{region}/{what} is gone", lambda: pid not in self.processes())

    def admin(self, region: str) -> str:
        return f"http://127.0.0.1:{self.regions[region]['port'] + 1}"

    def ask(self, region: str, *arguments: str) -> dict:
        """Returns what `spillway` says with these arguments, asked of this region's node."""
        command = [spillway(), *arguments, "--json", "--admin", self.admin(region)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        return json.loads(done.stdout)

    def log_status(self, region: str) -> dict:
        """What a node says of the log; nothing before it listens and has one."""
        command = [spillway(), "status", "--json", "--admin", self.admin(region)]
        # The command fails where anything is amiss, such as a region that is not back yet.
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        return json.loads(done.stdout or "{}").get("log") or {}

    def voters(self, region: str) -> list[str]:
        """Names of the voters, as one node sees them; none where it sees no leader."""
        status = self.log_status(region)
        return sorted(
            member["name"]
            for member in status.get("members", [])
            if member["is_voter"] and status["leader"]
        )

    def disks(self) -> dict[str, str]:
        """What tells a node that came back from one that began anew."""
        items = self.ask(next(iter(self.regions)), "get", "nodes")["items"]
        return {item["key"]: item["info"]["disk"] for item in items}

    def assert_serves(self) -> None:
        for region in self.regions:
            url = f"http://127.0.0.1:{self.regions[region]['port']}/v1/chat/completions"
            answer = json.loads(post(url, stream=False))
            assert answer["choices"][0]["message"]["content"], answer
            events = re.findall(r"^data: (.*)$", post(url, stream=True), re.MULTILINE)
            assert events[-1] == "[DONE]", events
            assert "".join(
                choice["delta"].get("content") or ""
                for event in events[:-1]
                for choice in json.loads(event)["choices"]
            )

    def assert_whole(self) -> None:
        """All nodes vote, all serve, and there is nothing to do."""
        for region in self.regions:
            wait_until(
                f"{region} sees all vote",
                lambda region=region: self.voters(region) == sorted(self.regions),
            )
        self.assert_serves()
        assert self.terraform.plan() == []


def environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def post(url: str, stream: bool) -> str:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "stream": stream}
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode()


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    example = Example(tmp_path_factory.mktemp("example"))
    try:
        example.terraform.init()
        example.terraform.apply()
        yield example
    finally:
        # What a failed test left, by the ids of what this test started.
        for pid in example.processes():
            os.kill(pid, signal.SIGKILL)


def test_three_nodes_serve_and_vote(example: Example) -> None:
    outputs = example.terraform.outputs()
    assert outputs["urls"] == {
        name: f"http://127.0.0.1:{region['port']}" for name, region in example.regions.items()
    }
    example.assert_whole()
    answer = subprocess.run(
        ["sh", "-c", outputs["request"]], capture_output=True, text=True, timeout=30, check=True
    )
    assert json.loads(answer.stdout)["choices"]
    status = subprocess.run(
        ["sh", "-c", outputs["status"]], capture_output=True, text=True, timeout=30, check=True
    )
    whole = f"; {len(REGIONS)} of {len(REGIONS)} voters"
    assert status.stdout.splitlines()[0].endswith(whole), status.stdout


def test_secrets_are_not_in_the_state(example: Example) -> None:
    state = (example.folder / "terraform.tfstate").read_text()
    secrets = [
        *example.folder.glob("state/**/*-key.pem"),
        example.folder / "state/certs/prefix.key",
    ]
    assert len(secrets) == 2 + len(REGIONS)
    for secret in secrets:
        assert secret.stat().st_mode & 0o077 == 0, secret
        # The second line of a PEM file is its first with a secret.
        assert secret.read_text().splitlines()[:2][-1] not in state, secret


@pytest.mark.parametrize("what", WHAT_STARTS)
def test_what_died_is_replaced_alone(example: Example, what: str) -> None:
    pids, disks = example.pids(), example.disks()
    example.kill("eu-central-1", what)
    assert example.terraform.plan() == [f'terraform_data.{what}["eu-central-1"]']
    # A saved plan: `apply` reads everything again, and has to come to the same.
    said = example.terraform.apply_planned()
    assert f"Found dead, to be started again by `apply`: eu-central-1/{what}." in said
    after = example.pids()
    assert {key for key in pids if pids[key] != after[key]} == {f"eu-central-1/{what}"}
    assert example.disks() == disks, "it came back with its disk"
    example.assert_whole()


def test_another_process_with_the_id_of_a_dead_one_is_not_taken_for_it(example: Example) -> None:
    example.kill("us-east-1", "node")
    start, _, token = example.mark("us-east-1", "node").read_text().split()
    # The kernel gave the id to another process, by chance to the one that runs this test.
    example.mark("us-east-1", "node").write_text(f"{start} {os.getpid()} {token}\n")
    assert example.terraform.plan() == ['terraform_data.node["us-east-1"]']
    example.terraform.apply_planned()
    example.assert_whole()


def test_all_come_back_after_the_machine_was_restarted(example: Example) -> None:
    cluster, disks = example.log_status("us-east-1")["cluster"], example.disks()
    for process in example.pids():
        example.kill(*process.split("/"))
    assert len(example.terraform.plan()) == 2 * len(REGIONS)
    example.terraform.apply_planned()
    example.assert_whole()
    assert example.log_status("us-east-1")["cluster"] == cluster
    assert example.disks() == disks


def test_one_more_region_joins_and_leaves_while_the_others_run(example: Example) -> None:
    pids = example.pids()
    example.regions["sa-east-1"] = {"port": next(example.ports), "country": "BR"}
    example.terraform.apply()
    status = example.log_status("sa-east-1")
    assert sorted(member["name"] for member in status["members"]) == sorted(example.regions)
    example.assert_serves()
    assert example.terraform.plan() == []

    removed = example.regions["sa-east-1"]
    example.terraform.variables["regions"] = {name: example.regions[name] for name in REGIONS}
    example.terraform.apply()
    assert is_free(removed["port"])
    assert sorted(example.disks()) == sorted(REGIONS)
    example.assert_whole()
    assert example.pids() == pids, "none was started again"


def test_another_binary_replaces_nodes_one_at_a_time(example: Example, tmp_path: Path) -> None:
    pids = example.pids()
    binary = tmp_path / "spillway"
    shutil.copy2(spillway(), binary)
    # Bytes after its end make an ELF file another one and change nothing.
    with binary.open("ab") as file:
        file.write(b"another release")
    example.terraform.variables["binary"] = str(binary)
    example.terraform.apply()
    after = example.pids()
    assert all(pids[key] != after[key] for key in pids)
    assert {os.readlink(f"/proc/{pid}/exe") for pid in after.values()} == {str(binary)}
    away = [last_time_away(example.place(region) / "node.log") for region in example.regions]
    for first, second in combinations(away, 2):
        assert first[1] <= second[0] or second[1] <= first[0], f"two were away at a time: {away}"
    example.assert_whole()


def last_time_away(log: Path) -> tuple[str, str]:
    """When a node was told to end, and when its successor served.

    Times of RFC 3339 in UTC are in order as text.
    """
    lines = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text()).splitlines()
    end = next(index for index in reversed(range(len(lines))) if " draining " in lines[index])
    back = next(line for line in islice(lines, end, None) if " metrics and health " in line)
    return lines[end].split()[0], back.split()[0]


def test_destroy_ends_what_hangs_and_what_has_no_mark(example: Example) -> None:
    example.kill("us-east-1", "node")
    # Hears no request to end.
    os.kill(example.pid("eu-central-1", "replicas"), signal.SIGSTOP)
    example.mark("ap-northeast-1", "node").unlink()
    assert len(example.processes()) == 2 * len(REGIONS) - 1
    (example.folder / "state/notes").write_text("mine")

    said = example.terraform.destroy()

    assert re.search(r"replicas in \S*eu-central-1: \d+ did not end within 20 s, killed", said), (
        said
    )
    assert example.processes() == []
    assert example.ports_in_use() == []
    assert [path.name for path in (example.folder / "state").rglob("*")] == ["notes"], (
        "what others put there stays"
    )
    assert json.loads((example.folder / "terraform.tfstate").read_text())["resources"] == []


def test_a_missing_binary_is_told_before_anything_starts(tmp_path: Path) -> None:
    example = Example(tmp_path)
    example.terraform.variables["binary"] = str(tmp_path / "none")
    example.terraform.init()
    done = example.terraform.run("apply", "-auto-approve", may_fail=True)
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert f"There is no {tmp_path}/none: run `cargo build --release`" in said
    assert not (example.folder / "state").exists()


def test_regions_whose_ports_collide_are_refused(tmp_path: Path) -> None:
    example = Example(tmp_path)
    example.terraform.variables["regions"] = {
        "one": {"port": 20100, "country": "US"},
        "two": {"port": 20110, "country": "US"},
    }
    example.terraform.init()
    done = example.terraform.run("plan", may_fail=True)
    assert done.returncode == 1
    assert "Each region needs a hundred of ports for itself" in done.stdout
