"""Two regions that announce one address to a router, each in a network namespace of its own. The router's
namespace is the clients' as well. Everything has names of this process, and is gone afterwards."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from needs import ROOT, spillway

ANYCAST = "192.0.2.1"
SITES = {"a": "198.18.1.2", "b": "198.18.2.2"}
ROUTER = {"a": "198.18.1.1", "b": "198.18.2.1"}
AS = {"router": 65000, "a": 65001, "b": 65002}
PATIENCE = 40.0
"""Seconds that anything may take on a busy machine."""

PROBE = """
import http.client, json, sys, time
address = sys.argv[1]
while True:
    started, site = time.monotonic(), None
    connection = http.client.HTTPConnection(address, 8080, timeout=1)
    try:
        connection.request("GET", "/v1/models", headers={"connection": "close"})
        text = connection.getresponse().read().decode()
        site = next((name for name in "ab" if f'"here-{name}"' in text), None)
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    print(json.dumps({"at": started, "site": site}), flush=True)
    # wait: some fifty new clients a second
    time.sleep(0.02)
"""

LOAD = """
import http.client, json, sys, threading
body = json.dumps({"model": "tiny", "max_tokens": 30, "ignore_eos": True,
                   "messages": [{"role": "user", "content": "Hi"}]})
def ask():
    while True:
        connection = http.client.HTTPConnection(sys.argv[1], 8080, timeout=30)
        try:
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        threading.Event().wait(0.02)
for _ in range(8):
    threading.Thread(target=ask, daemon=True).start()
threading.Event().wait()
"""


def eventually(what: str, check, patience: float = PATIENCE):
    """Waits until `check` says something true, and returns it."""
    until = time.monotonic() + patience
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < until, f"never: {what}"
        # wait: between two looks
        time.sleep(0.05)


class World:
    """The namespaces, and the processes in them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.names = {place: f"sw{os.getpid()}{place}" for place in ["router", "a", "b"]}
        self.processes: dict[str, subprocess.Popen] = {}
        self.logs = {}

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in reversed(list(self.processes)):
            self.kill(name)
        for log in self.logs.values():
            log.close()
        for name in self.names.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def _make(self):
        for name in self.names.values():
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        for site, address in SITES.items():
            router, own = self.names["router"], self.names[site]
            run("ip", "-n", router, "link", "add", f"to-{site}", "type", "veth", "peer", "name", "up0", "netns", own)
            for name, device, it in [(router, f"to-{site}", ROUTER[site]), (own, "up0", address)]:
                run("ip", "-n", name, "address", "add", f"{it}/24", "dev", device)
                run("ip", "-n", name, "link", "set", device, "up")
            run("ip", "-n", own, "route", "add", "default", "via", ROUTER[site])
            # It stays whatever is announced.
            run("ip", "-n", own, "address", "add", f"{ANYCAST}/32", "dev", "lo")
        self.run("router", "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def run(self, place: str, *command: str) -> str:
        """Runs a command in a namespace to its end."""
        return run("ip", "netns", "exec", self.names[place], *command)

    def start(self, place: str, name: str, *command: str, **options) -> subprocess.Popen:
        """Starts a process in a namespace; it can be told by `name`, and is ended with the world."""
        log = self.logs[name] = (self.folder / f"{name}.log").open("ab")
        # Replaced by the command, so that signals reach it.
        whole = ["ip", "netns", "exec", self.names[place], *command]
        options = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL, **options}
        self.processes[name] = subprocess.Popen(whole, cwd=self.folder, **options)
        return self.processes[name]

    def signal(self, name: str, number: signal.Signals):
        self.processes[name].send_signal(number)

    def kill(self, name: str):
        """Ends a process at once."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    # What runs in them.

    def start_router(self):
        """BIRD as the router above both sites, which likes the first one better."""
        peers = "".join(
            f"""
protocol bgp {"site_" + site} {{
    local {ROUTER[site]} as {AS["router"]};
    neighbor {address} as {AS[site]};
    hold time 3;
    connect delay time 1; connect retry time 1; error wait time 1, 2;
    ipv4 {{
        import filter {{ bgp_local_pref = {200 if site == "a" else 100}; accept; }};
        export none;
    }};
}}
"""
            for site, address in SITES.items()
        )
        config = f"""
router id {ROUTER["a"]};
protocol device {{ scan time 1; }}
protocol kernel {{ ipv4 {{ import none; export where source = RTS_BGP; }}; }}
{peers}"""
        self.start_bird("router", config)

    def start_bird(self, place: str, config: str):
        (self.folder / f"{place}.conf").write_text(config)
        socket = self.bird_socket(place)
        command = ["bird", "-f", "-c", f"{place}.conf", "-s", str(socket)]
        self.start(place, f"bird-{place}", *command)
        eventually("BIRD runs", socket.exists)

    def bird_socket(self, place: str) -> Path:
        return self.folder / f"{place}.ctl"

    def start_site_bird(self, site: str):
        """BIRD of a site, with the config that is shipped and the addresses of here."""
        text = (ROOT / "deploy/anycast/bird.conf").read_text()
        text = text.replace("198.51.100.2 as 65001", f"{SITES[site]} as {AS[site]}")
        text = text.replace("198.51.100.1 as 65000", f"{ROUTER[site]} as {AS['router']}")
        text = text.replace("router id 198.51.100.2", f"router id {SITES[site]}")
        # Times of a test: a hung site is to be seen within seconds.
        text = text.replace("hold time 9", "hold time 3").replace("keepalive time 3", "keepalive time 1")
        text = text.replace("log syslog all;", "")
        for short in ["connect delay time 1;", "connect retry time 1;", "error wait time 1, 2;"]:
            text = text.replace("    graceful restart off;", f"    {short}\n    graceful restart off;")
        self.start_bird(site, text)

    def make_certificates(self):
        run(spillway(), "certs", "init", "--cluster", "test", "--dir", str(self.folder))
        for site in SITES:
            run(spillway(), "certs", "node", "--dir", str(self.folder), "--region", site, "--node", f"n-{site}")

    def start_replica(self, site: str):
        command = ["emulate", "--listen", "127.0.0.1:9101", "--time-scale", "0.3"]
        self.start(site, f"replica-{site}", spillway(), *command)

    def start_node(self, site: str):
        """A node of a region of its own. It keeps its requests, so that more than it can serve is turned away."""
        (other,) = set(SITES) - {site}
        config = f"""
spill.enabled = false
spill.queue_max = 1
aliases.here-{site} = "tiny"
[node]
name = "n-{site}"
region = "{site}"
workers = 1
drain_notice_ms = 8000
[[listener]]
address = "0.0.0.0:8080"
auth = "none"
[admin]
address = "127.0.0.1:9900"
[cluster]
id = "test"
address = "{SITES[site]}:7946"
ca = "ca.pem"
certificate = "n-{site}.{site}.pem"
key = "n-{site}.{site}-key.pem"
prefix_key = "prefix.key"
[[peer]]
name = "n-{other}"
region = "{other}"
address = "{SITES[other]}:7946"
[[replica]]
name = "r"
url = "http://127.0.0.1:9101"
models = ["tiny"]
connections_max = 1
"""
        (self.folder / f"{site}.toml").write_text(config)
        self.start(site, f"node-{site}", spillway(), "run", "--config", f"{site}.toml")

    def start_helper(self, site: str):
        """The helper for BIRD, somewhat faster than by default."""
        command = ["anycast", "--bird", str(self.bird_socket(site)), "--protocol", "spillway_anycast4"]
        times = ["--interval-ms", "250", "--timeout-ms", "500", "--hold-ms", "1000"]
        self.start(site, f"helper-{site}", spillway(), *command, *times)

    def restart_site(self, site: str):
        """Ends all that a test may have left of a site but its replica, and starts it anew."""
        for name in [name for name in self.processes if name.endswith(f"-{site}") and name != f"replica-{site}"]:
            self.kill(name)
        for name in {"load", "wrong", "exabgp"} & set(self.processes):
            self.kill(name)
        self.bird_socket(site).unlink(missing_ok=True)
        self.start_node(site)
        self.start_site_bird(site)
        self.start_helper(site)

    def routes(self) -> str:
        """What the router knows of the address; BIRD fails where that is nothing."""
        command = ["birdc", "-s", str(self.bird_socket("router")), "show", "route", "all", "for", ANYCAST]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout

    def steering(self, site: str) -> dict:
        """What a node answers; empty if nothing."""
        text = f"""
import http.client
connection = http.client.HTTPConnection("127.0.0.1", 9900, timeout=2)
connection.request("GET", "/steering")
print(connection.getresponse().read().decode())
"""
        done = subprocess.run(
            ["ip", "netns", "exec", self.names[site], sys.executable, "-c", text],
            capture_output=True, text=True, check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 else {}


class Clients:
    """New clients of the announced address, some forty a second, and where each of them landed."""

    def __init__(self, world: World):
        world.start("router", "clients", sys.executable, "-c", PROBE, ANYCAST)
        self.file = (world.folder / "clients.log").open()
        self.rest = ""
        self.seen: list[dict] = []

    def look(self) -> list[dict]:
        """All that were seen so far."""
        *lines, self.rest = (self.rest + self.file.read()).split("\n")
        self.seen += [json.loads(line) for line in lines]
        return self.seen

    def land_in(self, site: str, since: float = 0.0) -> tuple[float, int]:
        """Waits until ten clients in a row that came after `since` landed in a site. Returns seconds from
        `since` to the first of them, and how many landed nowhere before."""

        def settled():
            after = [seen for seen in self.look() if seen["at"] >= since]
            for index in range(len(after) - 9):
                if all(seen["site"] == site for seen in after[index : index + 10]):
                    lost = sum(seen["site"] is None for seen in after[:index])
                    return (after[index]["at"] - since, lost)
            return None

        return eventually(f"clients land in {site}", settled)


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout
