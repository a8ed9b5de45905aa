"""Answers a second of a node's name server beside PowerDNS with its geoip backend, on this machine.

Not a test: figures of a shared machine mean something beside each other alone. So both are asked by dnsperf in rounds
that take turns, and the medians are printed. Needs pdns-server, pdns-backend-geoip, dnsperf, and mmdb_writer of PyPI:

    SPILLWAY_BIN=target/release/spillway python tests/deploy/dns_rate.py [ROUNDS] [SECONDS]
"""

import contextlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from netaddr import IPSet
from mmdb_writer import MMDBWriter
from needs import spillway

ZONE = "infer.example.com"

NODE = """
[node]
name = "n"
region = "eu-central-1"

[[listener]]
address = "127.0.0.1:0"
auth = "none"

[cluster]
id = "rate"
address = "127.0.0.1:0"
ca = "certs/ca.pem"
certificate = "certs/n.eu-central-1.pem"
key = "certs/n.eu-central-1-key.pem"
prefix_key = "certs/prefix.key"

[dns]
listen = "127.0.0.1:{port}"
zone = "infer.example.com"
name_servers = ["ns1.example.net"]
answers_per_s = 0

[[region]]
name = "eu-central-1"
addresses = ["203.0.113.1"]
client_networks = ["127.0.0.0/8"]
"""

POWERDNS = """
launch=geoip
geoip-database-files=mmdb:{folder}/city.mmdb
geoip-zones-file={folder}/zones.yaml
edns-subnet-processing=yes
local-address=127.0.0.1
local-port={port}
socket-dir={folder}
config-dir={folder}
daemon=no
guardian=no
disable-syslog=yes
loglevel=3
"""

ZONES = """
domains:
- domain: infer.example.com
  ttl: 20
  records:
    infer.example.com:
      - soa: ns1.example.net hostmaster.example.com 1 3600 600 604800 20
      - ns: ns1.example.net
    eu.infer.example.com:
      - a: 203.0.113.1
    unknown.infer.example.com:
      - a: 203.0.113.2
  services:
    infer.example.com: '%cn.infer.example.com'
"""


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def running(command: list[str], folder: Path, port: int) -> Iterator[int]:
    """A server, from when it answers on."""
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        asked = ["dig", "@127.0.0.1", "-p", str(port), "+short", "+time=1", "+tries=1", ZONE, "A"]
        while subprocess.run(asked, capture_output=True, text=True).stdout.split() != ["203.0.113.1"]:
            if time.monotonic() > deadline or process.poll() is not None:
                raise TimeoutError(Path(log.name).read_text())
            # wait: the pause between two looks.
            time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=20)


def rate(port: int, queries: Path, seconds: int) -> float:
    command = ["dnsperf", "-s", "127.0.0.1", "-p", str(port), "-d", str(queries), "-l", str(seconds), "-c", "8"]
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lost = re.search(r"Queries lost:\s+(\d+)", page)
    codes = re.search(r"Response codes:\s+(.*)", page)
    assert codes and codes.group(1).startswith("NOERROR"), page
    found = re.search(r"Queries per second:\s+([\d.]+)", page)
    print(f"  {found.group(1)} a second, {lost.group(1)} lost", flush=True)
    return float(found.group(1))


def main() -> None:
    rounds, seconds = (int(text) for text in (*sys.argv[1:], "5", "5")[:2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for arguments in (["init", "--cluster", "rate"], ["node", "--region", "eu-central-1", "--node", "n"]):
            subprocess.run([spillway(), "certs", *arguments, "--dir", "certs"], cwd=folder, check=True, capture_output=True)
        writer = MMDBWriter(ip_version=4, database_type="GeoLite2-City", languages=["en"])
        writer.insert_network(IPSet(["127.0.0.0/8"]), {"continent": {"code": "EU"}, "country": {"iso_code": "DE"}})
        writer.to_db_file(str(folder / "city.mmdb"))
        ours, theirs = free_port(), free_port()
        (folder / "node.toml").write_text(NODE.format(port=ours))
        (folder / "pdns.conf").write_text(POWERDNS.format(folder=folder, port=theirs))
        (folder / "zones.yaml").write_text(ZONES)
        queries = folder / "queries"
        queries.write_text(f"{ZONE} A\n")
        figures: dict[str, list[float]] = {"spillway": [], "powerdns": []}
        with (
            running([spillway(), "run", "--config", str(folder / "node.toml")], folder, ours),
            running(["/usr/sbin/pdns_server", f"--config-dir={folder}"], folder, theirs),
        ):
            for turn in range(rounds):
                order = [("spillway", ours), ("powerdns", theirs)]
                for server, port in order if turn % 2 == 0 else order[::-1]:
                    print(server)
                    figures[server].append(rate(port, queries, seconds))
    medians = {server: statistics.median(rates) for server, rates in figures.items()}
    print(medians, f"{medians['spillway'] / medians['powerdns']:.2f} of PowerDNS")


if __name__ == "__main__":
    main()
