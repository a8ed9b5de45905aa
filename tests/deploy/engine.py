"""A container engine in a network namespace of its own, with data, socket and processes that end with the test."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import need_root, need_tool

PATIENCE = 90.0


class Engine:
    """An engine that runs."""

    def __init__(self, namespace: str, socket: Path) -> None:
        self._namespace = namespace
        # The builder that needs no plugin; BuildKit is one that is not everywhere.
        self._environment = {**os.environ, "DOCKER_HOST": f"unix://{socket}", "DOCKER_BUILDKIT": "0"}

    def entered(self, *command: str) -> list[str]:
        """Returns a command as it runs in the engine's network."""
        return ["nsenter", f"--net=/run/netns/{self._namespace}", *command]

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command in the engine's network; whether it failed is for the caller to see."""
        return subprocess.run(self.entered(*command), capture_output=True, text=True, check=False, timeout=60)

    def docker(self, *arguments: str) -> str:
        """Runs docker and returns what it prints; fails the test if it fails."""
        done = subprocess.run(
            ["docker", *arguments], env=self._environment, capture_output=True, text=True, check=False, timeout=180
        )
        assert done.returncode == 0, f"docker {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def shell(self, command: str, cwd: Path) -> None:
        """Runs a shell command that calls docker."""
        subprocess.run(["bash", "-euc", command], env=self._environment, cwd=cwd, check=True, timeout=180)

    def until_health(self, container: str, wanted: str) -> None:
        """Waits until the health check of a container says what is wanted."""
        deadline = time.monotonic() + PATIENCE
        while True:
            state = self.docker("inspect", "--format={{.State.Health.Status}}", container).strip()
            if state == wanted:
                return
            if time.monotonic() > deadline:
                log = subprocess.run(
                    ["docker", "logs", container], env=self._environment, capture_output=True, text=True, check=False
                )
                pytest.fail(f"{container} is {state}, not {wanted}:\n{log.stderr[-4000:]}")
            time.sleep(0.2)  # wait: between two looks


@contextlib.contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """Starts an engine; skips the test where none can be started, and says why."""
    need_root()
    wanted = {"dockerd": "docker.io", "docker": "docker.io", "iptables": "iptables", "ip": "iproute2"}
    for name, package in wanted.items():
        need_tool(name, package)
    need_tool("nsenter", "util-linux")
    namespace = f"spillway-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", namespace], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no network namespace can be made: {made.stderr.strip()}")
    # A socket's path has 107 letters at most.
    socket = Path(f"/tmp/{namespace}.sock")
    started = Engine(namespace, socket)
    started.inside("ip", "link", "set", "lo", "up")
    with (folder / "dockerd.log").open("wb") as log:
        # Not `ip netns exec`: that mounts another /sys, which would hide the cgroups.
        daemon = subprocess.Popen(
            started.entered(
                need_tool("dockerd", "docker.io"), f"--data-root={folder / 'data'}", f"--exec-root={folder / 'exec'}",
                f"--pidfile={folder / 'pid'}", f"--host=unix://{socket}",
            ), stdout=log, stderr=log,
        )
    try:
        _need_answer(started, daemon, folder / "dockerd.log")
        yield started
    finally:
        with contextlib.suppress(AssertionError):
            running = started.docker("ps", "--all", "--quiet").split()
            if running:
                started.docker("rm", "--force", "--volumes", *running)
        daemon.terminate()
        daemon.wait(PATIENCE)
        subprocess.run(["ip", "netns", "delete", namespace], check=True)
        socket.unlink(missing_ok=True)


def _need_answer(started: Engine, daemon: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(AssertionError):
            started.docker("info")
            return
        if daemon.poll() is not None or time.monotonic() > deadline:
            pytest.skip(f"dockerd can't run here: {log.read_text()[-500:]}")
        time.sleep(0.2)  # wait: between two looks
