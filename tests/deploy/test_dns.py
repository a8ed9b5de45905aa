"""Nodes as name servers, asked by real clients: dig, kdig and dnsperf. Whoever is led where, and for how long after a
region has died."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from needs import need_tool, spillway

ZONE = "infer.example.com"
TTL_S = 2
DEADLINE_S = 60.0
"""Far above what anything here takes: what is measured is printed, not asked for."""

REGIONS = {
    # Known by their names: Frankfurt, Virginia, Singapore.
    "eu-central-1": ("203.0.113.1", "2001:db8:1::1", "10.1.0.0/16"),
    "us-east-1": ("203.0.113.2", "2001:db8:2::1", "10.2.0.0/16"),
    "ap-southeast-1": ("203.0.113.3", "2001:db8:3::1", "10.3.0.0/16"),
}
EU, US, AP = REGIONS

NODE = """
[node]
name = "{name}"
region = "{region}"

[[listener]]
address = "127.0.0.1:{gateway}"
auth = "none"

[admin]
address = "127.0.0.1:{admin}"

[cluster]
id = "dns"
address = "127.0.0.1:{link}"
ca = "certs/ca.pem"
certificate = "certs/{name}.{region}.pem"
key = "certs/{name}.{region}-key.pem"
prefix_key = "certs/prefix.key"

[dns]
listen = "127.0.0.1:{dns}"
zone = "{zone}"
names = ["@", "api"]
name_servers = ["ns1.{zone}", "ns2.{zone}"]
ttl_s = {ttl_s}
caa = ["0 issue \\"ca.example.net\\""]
hosts = {{ ns1 = ["203.0.113.129"], ns2 = ["203.0.113.130", "2001:db8::2"] }}
aliases = {{ _acme-challenge = "x.acme.example.net" }}
https = true
answers_per_s = 0

[[replica]]
name = "{name}-tiny"
url = "http://127.0.0.1:{replica}"
models = ["tiny"]
"""

PEER = """
[[peer]]
name = "{name}"
region = "{region}"
address = "127.0.0.1:{link}"
"""

REGION = """
[[region]]
name = "{region}"
addresses = ["{v4}", "{v6}"]
client_networks = ["{network}"]
"""


class Node:
    """One node of one region."""

    def __init__(self, region: str, folder: Path) -> None:
        self.region = region
        self.name = f"n-{region}"
        self.folder = folder
        self.gateway, self.admin, self.link, self.dns = free_ports(4)
        self.process: subprocess.Popen | None = None

    def start(self, others: list["Node"], replica: int) -> None:
        text = NODE.format(**vars(self), replica=replica, zone=ZONE, ttl_s=TTL_S)
        text += "".join(PEER.format(**vars(other)) for other in others)
        for region, (v4, v6, network) in REGIONS.items():
            text += REGION.format(region=region, v4=v4, v6=v6, network=network)
        path = self.folder / f"{self.name}.toml"
        path.write_text(text)
        checked = subprocess.run([spillway(), "config", "check", str(path)], capture_output=True, text=True, timeout=30)
        assert checked.returncode == 0, checked.stderr
        self.process = run([spillway(), "run", "--config", str(path)], self.folder, self.name)

    def metric(self, name: str, labels: str = "") -> float:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5) as response:
                page = response.read().decode()
            found = re.findall(rf"^{name}{{?[^}}\n]*{re.escape(labels)}[^}}\n]*}}? (\S+)$", page, re.MULTILINE)
            return sum(map(float, found))
        return -1.0


def run(command: list[str], folder: Path, name: str) -> subprocess.Popen:
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def free_ports(count: int) -> list[int]:
    """Ports that nobody has now, for either transport."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def until(what: str, holds: Callable[[], bool]) -> float:
    """Waits for something, and returns how long that took in seconds."""
    start = time.monotonic()
    while not holds():
        assert time.monotonic() - start < DEADLINE_S, f"never: {what}"
        # wait: the pause between two looks.
        time.sleep(0.02)
    return time.monotonic() - start


def certify(folder: Path, *arguments: str) -> None:
    command = [spillway(), "certs", *arguments, "--dir", "certs"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=30)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, Node]]:
    """A node in each region, all of them name servers that know each other."""
    certify(folder, "init", "--cluster", "dns")
    nodes = [Node(region, folder) for region in REGIONS]
    (replica,) = free_ports(1)
    command = [spillway(), "emulate", "--listen", f"127.0.0.1:{replica}", "--model=tiny"]
    emulator = run(command, folder, "emulator")
    try:
        for node in nodes:
            certify(folder, "node", "--region", node.region, "--node", node.name)
        for node in nodes:
            node.start([other for other in nodes if other is not node], replica)
        for node in nodes:
            until(f"{node.name} knows all", lambda n=node: n.metric("spillway_dns_region_offered") == len(REGIONS))
            # And what each serves: before that it sends resolvers to another name server.
            until(f"{node.name} answers", lambda n=node: status(dig(n, "A")) == "NOERROR")
        yield {node.region: node for node in nodes}
    finally:
        for process in [emulator, *(node.process for node in nodes)]:
            if process is not None and process.poll() is None:
                process.terminate()
        for process in [emulator, *(node.process for node in nodes)]:
            if process is not None:
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Node]]:
    need_tool("dig", "bind9-dnsutils")
    with cluster(tmp_path_factory.mktemp("dns")) as nodes:
        yield nodes


def dig(node: Node, *arguments: str, name: str = ZONE) -> str:
    """What dig prints: everything, so that a fault says what was got."""
    command = [need_tool("dig", "bind9-dnsutils"), "@127.0.0.1", "-p", str(node.dns), "+time=2", "+tries=3"]
    done = subprocess.run([*command, name, *arguments], capture_output=True, text=True, timeout=30)
    return done.stdout


def status(text: str) -> str:
    found = re.search(r"status: (\w+)", text)
    return found.group(1) if found else f"no status in {text!r}"


def records(text: str) -> list[str]:
    """The data of the records of the answer."""
    section = re.search(r";; ANSWER SECTION:\n(.*?)\n\n", text, re.DOTALL)
    return sorted(line.split(None, 4)[4] for line in section.group(1).splitlines()) if section else []


def subnet(region: str) -> str:
    return "+subnet=" + REGIONS[region][2].replace(".0.0/16", ".9.0/24")


@pytest.mark.parametrize("asked", REGIONS)
def test_clients_of_each_network_are_led_to_the_region_near_them(world: dict[str, Node], asked: str) -> None:
    node = world[asked]
    for near, (v4, v6, _) in REGIONS.items():
        for extra in ([], ["+tcp"], ["+bufsize=512"], ["+noedns"] if near == asked else []):
            arguments = [] if "+noedns" in extra else [subnet(near)]
            answer = dig(node, "A", *arguments, *extra)
            assert records(answer) == [v4], answer
            assert " aa" in answer, answer
        answer = dig(node, "AAAA", subnet(near), name=f"api.{ZONE}")
        assert records(answer) == [v6], answer
        assert re.search(rf"CLIENT-SUBNET: \S+/24/24", answer), answer
        assert re.search(rf"^api\.{re.escape(ZONE)}\.\s+{TTL_S}\s+IN\s+AAAA", answer, re.MULTILINE), answer


def test_every_kind_of_record_is_what_a_checker_of_zones_wants(world: dict[str, Node]) -> None:
    node = world[EU]
    assert records(dig(node, "NS")) == [f"ns1.{ZONE}.", f"ns2.{ZONE}."]
    assert records(dig(node, "SOA")) == [f"ns1.{ZONE}. hostmaster.{ZONE}. 1 3600 600 604800 {TTL_S}"]
    assert records(dig(node, "CAA")) == ['0 issue "ca.example.net"']
    # Older versions of dig print it in hexadecimal.
    https = records(dig(node, "TYPE65"))
    assert https in (['1 . alpn="h2"'], [r"\# 10 00010000010003026832"]), https
    assert records(dig(node, "AAAA", name=f"ns2.{ZONE}")) == ["2001:db8::2"]
    assert records(dig(node, "TXT", name=f"_acme-challenge.{ZONE}")) == ["x.acme.example.net."]
    assert records(dig(node, "ANY")) == ['"RFC8482" ""']


def test_what_is_not_there_or_not_allowed_has_the_right_status(world: dict[str, Node]) -> None:
    node = world[US]
    for arguments, name, expected in [
        (["A"], f"nobody.{ZONE}", "NXDOMAIN"),
        (["TXT"], ZONE, "NOERROR"),
        (["A"], "example.org", "REFUSED"),
        (["CH", "TXT"], "version.bind", "REFUSED"),
        (["A", "+edns=5", "+noednsnegotiation"], ZONE, "BADVERS"),
        (["A", "+opcode=notify"], ZONE, "NOTIMP"),
        (["A", "+header-only"], ZONE, "FORMERR"),
    ]:
        answer = dig(node, *arguments, name=name)
        assert status(answer) == expected, answer
        assert not records(answer), answer
    transfer = dig(node, "AXFR")
    assert "Transfer failed" in transfer, transfer
    for name, kind in [(f"nobody.{ZONE}", "A"), (ZONE, "TXT")]:
        assert re.search(rf"{ZONE}\.\s+{TTL_S}\s+IN\s+SOA", dig(node, kind, name=name)), "no SOA"


def test_letters_keep_their_case(world: dict[str, Node]) -> None:
    answer = dig(world[EU], "A", subnet(EU), name="InFeR.eXaMpLe.CoM")
    assert answer.count("InFeR.eXaMpLe.CoM.") >= 2, answer


def test_kdig_agrees_with_dig(world: dict[str, Node]) -> None:
    kdig = need_tool("kdig", "knot-dnsutils")
    for region, (v4, _, network) in REGIONS.items():
        command = [kdig, "@127.0.0.1", "-p", str(world[EU].dns), f"+subnet={network}", "+short", ZONE, "A"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        assert done.stdout.split() == [v4], region


def test_a_checker_of_zones_takes_what_is_answered_for_a_zone(world: dict[str, Node], tmp_path: Path) -> None:
    checker = need_tool("named-checkzone", "bind9-utils")
    asked = [(ZONE, kind) for kind in ("SOA", "NS", "A", "AAAA", "CAA")]
    asked += [(f"ns{n}.{ZONE}", "A") for n in (1, 2)] + [(f"_acme-challenge.{ZONE}", "CNAME")]
    lines = [line for name, kind in asked for line in dig(world[EU], kind, "+noall", "+answer", name=name).splitlines()]
    zone = tmp_path / "zone"
    zone.write_text("".join(f"{line}\n" for line in lines if line and not line.startswith(";")))
    done = subprocess.run([checker, ZONE, str(zone)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout


def test_dnsperf_gets_an_answer_to_everything_it_asks(world: dict[str, Node], tmp_path: Path) -> None:
    dnsperf = need_tool("dnsperf", "dnsperf")
    queries = tmp_path / "queries"
    queries.write_text(f"{ZONE} A\napi.{ZONE} AAAA\n{ZONE} HTTPS\n{ZONE} SOA\n")
    for mode in ("udp", "tcp"):
        command = [dnsperf, "-s", "127.0.0.1", "-p", str(world[US].dns), "-d", str(queries), "-m", mode]
        done = subprocess.run([*command, "-n", "500", "-c", "4", "-t", "30"], capture_output=True, text=True, timeout=200)
        assert re.search(r"Queries completed:\s+2000 \(100.00%\)", done.stdout), done.stdout
        assert re.search(r"Response codes:\s+NOERROR 2000 \(100.00%\)", done.stdout), done.stdout


def test_a_region_that_dies_or_drains_is_gone_from_answers(tmp_path: Path) -> None:
    need_tool("dig", "bind9-dnsutils")
    with cluster(tmp_path) as nodes:
        asked = nodes[EU]

        def told(region: str) -> list[str]:
            return records(dig(asked, "A", subnet(region)))

        assert told(US) == [REGIONS[US][0]]
        nodes[US].process.kill()
        gone_s = until("the dead region is gone", lambda: told(US) != [REGIONS[US][0]])
        # The next region for Virginia is Frankfurt.
        assert told(US) == [REGIONS[EU][0]]
        assert told(AP) == [REGIONS[AP][0]]
        print(json.dumps({"gone_after_kill_s": round(gone_s, 2), "ttl_s": TTL_S}))
        nodes[AP].process.terminate()
        drained_s = until("the ending region is gone", lambda: told(AP) == [REGIONS[EU][0]])
        print(json.dumps({"gone_after_sigterm_s": round(drained_s, 2)}))
        # It comes back as soon as it is heard and has been well for a while.
        nodes[US].start([node for node in nodes.values() if node is not nodes[US]], replica_of(nodes[US]))
        until("the region is back", lambda: told(US) == [REGIONS[US][0]])


def replica_of(node: Node) -> int:
    text = (node.folder / f"{node.name}.toml").read_text()
    return int(re.search(r'url = "http://127.0.0.1:(\d+)"', text).group(1))
