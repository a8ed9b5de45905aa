"""What watches nodes: alerts, their tests, and the dashboard, with a real Prometheus. docs/guides/alerts.md says it."""

import itertools
import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import ROOT, need_tool

FOLDER = ROOT / "deploy/observability"


def test_rules_are_valid_and_each_alert_fires_on_its_trouble() -> None:
    promtool = need_tool("promtool", "prometheus")
    subprocess.run([promtool, "check", "rules", FOLDER / "rules.yml"], check=True)
    subprocess.run([promtool, "test", "rules", FOLDER / "rules_test.yml"], check=True)
    rules = (FOLDER / "rules.yml").read_text()
    alerts = set(re.findall(r"alert: (\w+)", rules))
    assert alerts == set(re.findall(r"alertname: (\w+)", (FOLDER / "rules_test.yml").read_text()))


def test_each_alert_has_a_part_of_the_runbook() -> None:
    rules = (FOLDER / "rules.yml").read_text()
    headings = set(re.findall(r"^### (\w+)$", (ROOT / "docs/guides/alerts.md").read_text(), re.MULTILINE))
    assert headings == set(re.findall(r"alert: (\w+)", rules))
    for alert in headings:
        assert f"runbook: 'docs/guides/alerts.md#{alert.lower()}'" in rules
        # On the node itself, which its scraper knows by the address of its admin listener.
        assert f"runbook_url: 'http://{{{{ $labels.instance }}}}/docs/guides/alerts.html#{alert.lower()}'" in rules


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Returns the address of a Prometheus that watches a demo: three regions, of which one is lost near its end."""
    binary = need_tool("prometheus", "prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    log = (folder / "demo.log").open("w")
    demo = subprocess.Popen(
        [os.environ["SPILLWAY_BIN"], "demo", "--json", "--seconds", "40", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=log, text=True,
    )
    assert demo.stdout is not None
    # The first phase has nodes of its own.
    events = (json.loads(line) for line in demo.stdout)
    _, second = itertools.islice((it for it in events if it["event"] == "start"), 2)
    targets = list(second["admin"].values())
    config = folder / "prometheus.yml"
    config.write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(FOLDER / "rules.yml")],
        "scrape_configs": [{"job_name": "spillway", "static_configs": [{"targets": targets}]}],
    }))
    server = subprocess.Popen(
        [binary, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
         "--web.listen-address=127.0.0.1:0"],
        stdout=subprocess.DEVNULL, stderr=(folder / "prometheus.log").open("w"),
    )
    try:
        yield _address(folder / "prometheus.log", server)
    finally:
        server.terminate()
        demo.terminate()
        server.wait(30)
        demo.wait(60)


def _address(log: Path, server: "subprocess.Popen[bytes]") -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = re.search(r'Listening on"? ?.*?address=(127\.0\.0\.1:\d+)', log.read_text())
        # It listens before it answers.
        if found and _is_ready(f"http://{found.group(1)}"):
            return f"http://{found.group(1)}"
        assert server.poll() is None, log.read_text()
        # wait: Prometheus says its port once it listens.
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def _is_ready(prometheus: str) -> bool:
    try:
        with urllib.request.urlopen(f"{prometheus}/-/ready", timeout=10):
            return True
    except urllib.error.URLError:
        return False


def _query(prometheus: str, query: str) -> list[dict[str, object]]:
    url = f"{prometheus}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(url, timeout=30) as reply:
        answer = json.load(reply)
    assert answer["status"] == "success", answer
    result: list[dict[str, object]] = answer["data"]["result"]
    return result


def _until(prometheus: str, query: str, seconds: float = 180) -> list[dict[str, object]]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = _query(prometheus, query)
        if found:
            return found
        # wait: the time between two scrapes.
        time.sleep(0.5)
    raise AssertionError(f"nothing came of {query}: {_query(prometheus, 'up')}")


@pytest.mark.timeout(600)
def test_a_lost_region_raises_its_alert_and_each_query_of_the_dashboard_is_of_what_there_is(prometheus: str) -> None:
    firing = 'ALERTS{alertname="SpillwayRegionLost",alertstate="firing"}'
    lost = _until(prometheus, firing, 300)
    assert lost[0]["metric"]["region"] == "ap-northeast-1"  # type: ignore[index]
    down = _query(prometheus, 'ALERTS{alertname="SpillwayNodeDown"}')
    assert down, "its node is down, too"

    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    panels = dashboard["panels"] + [inner for row in dashboard["panels"] for inner in row.get("panels", [])]
    queries = [panel["targets"][0]["expr"] for panel in panels if panel["type"] != "row"]
    assert len(queries) > 100
    known = set(re.findall(r"^\| `(spillway_\w+)`", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE))
    found = 0
    for query in queries:
        names = {re.sub("_(total|bucket|info)$", "", name) for name in re.findall(r"spillway_\w+", query)}
        assert names and names <= known, query
        # Nothing comes of what has not happened, such as a certificate that ends.
        found += bool(_query(prometheus, query))
    assert found > len(queries) / 2
