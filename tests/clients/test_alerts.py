"""Each alert, by the trouble that it is for: a real Prometheus raises it, and its part of the runbook finds the cause.

tests/deploy tries the rules on figures; here the figures are those of three real nodes (docs/guides/alerts.md)."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from cluster import certify
from incident_site import Node, Site, eventually
from processes import Process, free_ports
from world import metrics, spillway

RULES = Path(__file__).parent.parent.parent / "deploy/observability/rules.yml"
FIRES_S = 60.0

pytestmark = [
    pytest.mark.skipif(
        "SPILLWAY_LONG" not in os.environ, reason="takes two minutes: SPILLWAY_LONG=1 cargo xtask test clients"
    ),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="no prometheus here (Debian: apt-get install prometheus)"
    ),
    pytest.mark.timeout(120),
]


class Watched:
    """A site, and a Prometheus that watches it with the project's rules."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        # As the rules are, but for the patience that they have with trouble that ends by itself.
        rules = re.sub(r"for: \d+[sm]", "for: 0s", RULES.read_text())
        (folder / "rules.yml").write_text(re.sub(r"\[\d+m\]", "[10s]", rules))
        targets = [f"127.0.0.1:{node.admin}" for node in site.nodes.values()]
        scraped = {"job_name": "spillway", "static_configs": [{"targets": targets}]}
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config = {"global": every, "rule_files": ["rules.yml"], "scrape_configs": [scraped]}
        (folder / "prometheus.yml").write_text(json.dumps(config))
        address = f"127.0.0.1:{next(free_ports())}"
        self.url = f"http://{address}"
        command = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address={address}"]
        self.process = Process("prometheus", command, folder)

    def ask(self, query: str) -> list[dict[str, str]]:
        text = urllib.parse.urlencode({"query": query})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{text}", timeout=10) as reply:
            return [found["metric"] for found in json.load(reply)["data"]["result"]]

    def sees_all(self) -> bool:
        """Whether it has figures of all nodes: only from then on it sees them change."""
        try:
            return len(self.ask("spillway_build_info")) == len(self.site.nodes)
        except OSError:
            return False

    def wait_for(self, alert: str, node: Node, **labels: str) -> None:
        """Returns once the alert fires for a node, with these labels."""
        wanted = {"alertname": f"Spillway{alert}", "instance": f"127.0.0.1:{node.admin}", **labels}
        deadline = time.monotonic() + FIRES_S
        while True:
            firing = self.ask('ALERTS{alertstate="firing"}')
            if any(wanted.items() <= found.items() for found in firing):
                return
            assert time.monotonic() < deadline, f"no {wanted} among {firing}"
            time.sleep(0.2)  # wait: until Prometheus has looked again


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    site = Site(tmp_path_factory.mktemp("alerts"))
    with ExitStack() as ending:
        ending.callback(site.stop)
        watched = Watched(site, tmp_path_factory.mktemp("prometheus"))
        ending.callback(watched.process.stop)
        watched.process.wait_until("told by all nodes", watched.sees_all, FIRES_S)
        yield watched


@contextmanager
def stopped(*nodes: Node) -> Iterator[None]:
    """Lets nodes stand still, as machines behind a cable that was cut."""
    for node in nodes:
        node.process.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for node in nodes:
            node.process.signal(signal.SIGCONT)
    for node in nodes:
        eventually(node.sentence, "healthy: ")


@contextmanager
def changed(node: Node, more: str) -> Iterator[None]:
    """Adds lines to a node's config, which it takes into use by itself."""
    path = node.folder / f"{node.name}.toml"
    text = path.read_text()
    path.write_text(text + more)
    try:
        yield
    finally:
        path.write_text(text)


@contextmanager
def restarted(node: Node, more: str) -> Iterator[None]:
    """Runs a node with these lines in its config for a while."""
    with changed(node, more):
        node.process.stop()
        node.start()
        eventually(node.sentence, "healthy: ")
        yield
    node.process.stop()
    node.start()
    eventually(node.sentence, "healthy: ")


@contextmanager
def broken(site: Site, fault: dict, *replicas: int) -> Iterator[None]:
    with ExitStack() as faults:
        for replica in replicas:
            faults.enter_context(site.fault(replica, fault))
        yield


def test_nodes_that_stand_still(watched: Watched) -> None:
    us, eu, ap = watched.site.us, watched.site.eu, watched.site.ap
    with stopped(ap, eu):
        watched.wait_for("NodeDown", ap)
        assert ap.run("health").returncode != 0
        watched.wait_for("RegionLost", us, region="ap-northeast-1")
        assert "silent" in us.text("get", "regions")
        watched.wait_for("NoLeader", us)
        eventually(us.sentence, "NO QUORUM: 1 of 3 voters reporting")


def test_a_replica_that_is_gone_and_the_last_one(watched: Watched) -> None:
    ap = watched.site.ap
    with broken(watched.site, {"kind": "crash"}, 5):
        watched.wait_for("ReplicaDown", ap, replica="ap-gpu-a")
        watched.wait_for("LastResort", ap)
        watched.wait_for("LoadUnknown", ap, replica="ap-gpu-a")
        eventually(lambda: ap.text("replicas"), "down", "active bad", "scrape bad")
    eventually(ap.sentence, "healthy: ")


def test_replicas_that_fail_at_what_they_are_asked(watched: Watched) -> None:
    eu = watched.site.eu
    with watched.site.load(eu, "acme", callers=6, pause_s=0.05), broken(watched.site, {"kind": "status", "code": 500}, 3, 4):
        watched.wait_for("Errors", eu)
        eventually(lambda: eu.text("tail", "--once", "--failed"), "500", "eu-gpu-")


def test_more_retries_than_the_budget_has(watched: Watched) -> None:
    eu = watched.site.eu
    busy = {"kind": "status", "code": 503, "probability": 0.5}
    with restarted(eu, "\n[retry]\nbudget_percent = 0\n"):
        with watched.site.load(eu, "acme", callers=4, pause_s=0.05), broken(watched.site, busy, 3, 4):
            watched.wait_for("RetriesRefused", eu)
            eventually(lambda: eu.text("tail", "--once", "--failed"), "503")


def test_a_region_in_which_requests_fail_and_no_room_elsewhere(watched: Watched) -> None:
    site = watched.site
    us = site.us
    for letter in "abc":
        us.text("drain", f"us-east-1/us-gpu-{letter}")
    with site.load(us, "acme", callers=8, pause_s=0.02), broken(site, {"kind": "hang"}, 3, 4, 5):
        watched.wait_for("RegionFailing", us)
        eventually(lambda: site.eu.text("replicas"), "bad")
        watched.wait_for("Shedding", us)
        assert "refused for" in eventually(lambda: us.text("top", "--once"), "refused for")
    for letter in "abc":
        us.text("undrain", f"us-east-1/us-gpu-{letter}")
    eventually(us.sentence, "healthy: ")


def test_a_client_beyond_its_limit(watched: Watched) -> None:
    us = watched.site.us
    us.text("limits", "set", "tenant:initech", "--requests-per-min", "60")
    with watched.site.load(us, "initech", callers=4, pause_s=0.05):
        watched.wait_for("TenantOverLimit", us, reason="request_rate")
        eventually(lambda: us.text("tail", "--once", "--status", "429"), "initech-1")


def test_first_tokens_that_are_late(watched: Watched) -> None:
    ap = watched.site.ap
    with broken(watched.site, {"kind": "slow", "factor": 300}, 5), watched.site.load(ap, "acme", callers=8, pause_s=1.0):
        watched.wait_for("SlowFirstToken", ap)
        eventually(lambda: ap.text("tail", "--once", "--route", "default"), " s ")


def test_a_certificate_that_ends(watched: Watched) -> None:
    eu = watched.site.eu
    certify(watched.site.folder, "node", "--region", eu.region, "--node", "eu", "--days", "2", "--force")
    eu.process.signal(signal.SIGHUP)
    watched.wait_for("CertificateExpires", eu)
    assert "links" in eu.run("certs", "show").stdout
    certify(watched.site.folder, "renew", "--region", eu.region, "--node", "eu", "--out", "certs")
    eu.process.signal(signal.SIGHUP)


def test_little_memory(watched: Watched) -> None:
    ap = watched.site.ap
    used = re.search(r'spillway_memory_bytes\{kind="used"\} (\d+)', metrics(ap.admin))
    with restarted(ap, f"\n[limits]\nmemory_bytes_max = {int(int(used[1]) * 1.15)}\n"):
        watched.wait_for("Memory", ap)
        assert "spillway_request_body_bytes 0" in metrics(ap.admin)


def test_a_config_with_an_error(watched: Watched) -> None:
    us = watched.site.us
    with changed(us, "\nnonsense = 1\n"):
        watched.wait_for("ConfigRefused", us)
        command = [spillway(), "config", "check", "us.toml"]
        checked = subprocess.run(command, cwd=us.folder, capture_output=True, text=True, timeout=20, check=False)
        assert checked.returncode != 0 and "nonsense" in checked.stderr


def test_a_discovery_without_an_answer(watched: Watched) -> None:
    us = watched.site.us
    source = '[[discovery]]\nname = "workers"\ndns = "workers.test:8000"\nresolver = "127.0.0.1:1"\n'
    with changed(us, f'\n{source}[discovery.replica]\nmodels = ["big"]\n'):
        watched.wait_for("DiscoveryFails", us, discovery="workers", state="unanswered")
        eventually(us.sentence, "degraded: discoveries lack answers (workers is unanswered)")
        assert "never answered" in us.run("status").stdout


def test_a_record_that_means_nothing(watched: Watched) -> None:
    us = watched.site.us
    us.put("v1/routes/lost", {"pool": "nowhere"})
    watched.wait_for("RecordsUnusable", us, kind="route")
    assert "no replica is in the pool" in us.process.log.read_text()
    us.text("remove", "route", "lost")


def test_an_access_log_that_can_not_be_written(watched: Watched) -> None:
    us = watched.site.us
    with changed(us, '\n[access_log]\nrequests = "all"\nfile = "/dev/full"\n'), watched.site.load(us, "acme", 2, 0.1):
        watched.wait_for("Blind", us)
        assert "requests can't be written to the access log" in us.process.log.read_text()


def test_every_alert_was_raised() -> None:
    raised = set(re.findall(r'wait_for\("(\w+)"', Path(__file__).read_text()))
    assert {f"Spillway{name}" for name in raised} == set(re.findall(r"alert: (\w+)", RULES.read_text()))
