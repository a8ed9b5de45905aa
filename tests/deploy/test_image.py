"""The container image and compose.yaml, by a real engine in a network namespace of its own.

There is no compose plugin here: the test reads compose.yaml and starts its services as compose would. Whatever
word of the file it does not know fails the test. Prometheus' image can't be pulled there: its config is checked,
and Debian's Prometheus reads the nodes.
"""

import contextlib
import json
import subprocess
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from compose import Project
from engine import Engine, engine
from install_doc import blocks
from needs import ROOT, need_tool
from packages import packages

pytestmark = pytest.mark.timeout(1200)

DEPLOY = ROOT / "deploy" / "docker"
PATIENCE = 60.0
CHAT = json.dumps({"model": "tiny", "max_tokens": 3, "messages": [{"role": "user", "content": "hello"}]})


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine that has built the image, by the command of docs/guides/install.md."""
    with engine(tmp_path_factory.mktemp("engine")) as started:
        build = blocks("Containers")["build"].replace("target/packages", str(packages()))
        started.shell(build, cwd=ROOT)
        yield started


def test_the_image_is_the_binary_and_little_else(docker: Engine) -> None:
    size = int(docker.docker("image", "inspect", "--format={{.Size}}", "spillway"))
    binary = (packages() / "spillway").stat().st_size
    assert binary <= size <= binary + (64 << 10)
    # A dev build is larger. `cargo xtask dist` refuses a binary for deployment that is not below 44 MiB.
    config = json.loads(docker.docker("image", "inspect", "--format={{json .Config}}", "spillway"))
    assert config["User"] == "65532:65532"
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/spillway", "health"]


def test_one_node_serves_and_its_health_check_tells_when_it_does_not(docker: Engine, tmp_path: Path) -> None:
    config = tmp_path / "spillway.toml"
    config.write_text((ROOT / "deploy/debian/spillway.toml").read_text().replace("drain_notice_ms = 5000", ""))
    run = blocks("Containers")["run"].replace("$PWD", str(tmp_path))
    docker.shell(run, cwd=tmp_path)
    docker.until_health("node", "healthy")
    assert docker.docker("exec", "node", "/usr/bin/spillway", "health").strip() == "ok"
    docker.docker("kill", "--signal=STOP", "node")
    docker.until_health("node", "unhealthy")
    docker.docker("kill", "--signal=CONT", "node")
    docker.until_health("node", "healthy")
    docker.docker("stop", "--time=90", "node")
    assert docker.docker("inspect", "--format={{.State.ExitCode}}", "node").strip() == "0"


def test_compose_starts_three_regions_that_serve(docker: Engine, tmp_path: Path) -> None:
    project = Project(DEPLOY / "compose.yaml", docker, tmp_path)
    subprocess.run(["bash", project.folder / "setup.sh"], check=True)
    project.run("setup")
    started = [name for name in project.services_to_start() if name != "prometheus"]
    assert set(started) == {"eu", "us", "ap", "replicas-eu", "replicas-us", "replicas-ap"}
    for name in started:
        project.start(name)
    for region in ["eu", "us", "ap"]:
        docker.until_health(f"spillway-{region}-1", "healthy")
        address = project.address(region)
        reply = _until_served(docker, f"http://{address}:8080/v1/chat/completions")
        assert reply["usage"]["completion_tokens"] == 3
    _they_know_each_other(docker, project)
    _prometheus_reads_them(docker, project, tmp_path)


def _until_served(docker: Engine, url: str) -> dict:
    deadline = time.monotonic() + PATIENCE
    while True:
        command = ["curl", "--silent", "--fail", url, "--header", "content-type: application/json", "--data", CHAT]
        done = docker.inside(*command)
        if done.returncode == 0:
            return json.loads(done.stdout)
        assert time.monotonic() < deadline, done
        time.sleep(0.2)  # wait: between two looks


def _they_know_each_other(docker: Engine, project: Project) -> None:
    """Both replicas of one region are gone: another one serves what comes in there."""
    docker.docker("kill", "spillway-replicas-eu-1")
    reply = _until_served(docker, f"http://{project.address('eu')}:8080/v1/chat/completions")
    assert reply["usage"]["completion_tokens"] == 3


def _prometheus_reads_them(docker: Engine, project: Project, tmp_path: Path) -> None:
    promtool = need_tool("promtool", "prometheus")
    # Its files are where the containers have them; here, they are beside compose.yaml.
    text = (project.folder / "prometheus.yml").read_text()
    text = text.replace("/run/secrets/prometheus", str(project.folder / "secrets/prometheus"))
    for region in ["eu", "us", "ap"]:
        text = text.replace(f"{region}:9900", f"{project.address(region)}:9900")
    config = tmp_path / "prometheus.yml"
    config.write_text(text)
    subprocess.run([promtool, "check", "config", config], check=True)
    prometheus = need_tool("prometheus", "prometheus")
    with _running(docker, [prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                           "--web.listen-address=127.0.0.1:9090"]):
        deadline = time.monotonic() + PATIENCE
        query = "http://127.0.0.1:9090/api/v1/query?query=up"
        while True:
            asked = docker.inside("curl", "--silent", "--fail", query)
            found = json.loads(asked.stdout)["data"]["result"] if asked.returncode == 0 else []
            if sorted(one["value"][1] for one in found) == ["1", "1", "1"]:
                return
            assert time.monotonic() < deadline, asked
            time.sleep(0.5)  # wait: between two looks


@contextlib.contextmanager
def _running(docker: Engine, command: list[str]) -> Iterator[None]:
    with subprocess.Popen(docker.entered(*command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def test_every_word_of_compose_is_one_that_the_tests_know() -> None:
    """Runs where no engine can: the file is read, its anchors are resolved, its references exist."""
    text = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for name, service in text["services"].items():
        Project.need_known(name, service)
        for needed in service.get("depends_on", []):
            assert needed in text["services"], needed
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            named = source in text["volumes"]
            # The secrets are made by setup.sh.
            assert named or source.startswith("./secrets/") or (DEPLOY / source).exists(), source
