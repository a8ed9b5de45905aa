"""A throw-away machine: this one's files under an overlay, with a systemd of its own in namespaces.

Whatever is installed, started or removed in it is gone with it. It has no network but loopback.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import need_root, need_tool

PATIENCE = 60.0
"""Seconds that a machine may take to start: many times what it does."""

INIT = Path(__file__).with_name("machine_init.sh")


class Machine:
    """A machine that runs."""

    def __init__(self, pid: int) -> None:
        self._enter = ["nsenter", f"--target={pid}", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup"]
        self._enter += ["--root", "--wd"]

    def try_run(self, command: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        """Runs a shell command as root; whether it failed is for the caller to see."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
        environment["DEBIAN_FRONTEND"] = "noninteractive"
        done = subprocess.run(
            [*self._enter, "bash", "-euo", "pipefail", "-c", f"cd /root\n{command}"],
            input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, timeout=120, check=False,
        )
        return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(errors="replace"))

    def run(self, command: str, stdin: bytes = b"") -> str:
        """Runs a shell command as root and returns what it prints; fails the test if it fails."""
        done = self.try_run(command, stdin)
        if done.returncode != 0:
            log = self.try_run("journalctl --no-pager --lines=40 --output=cat").stdout
            pytest.fail(f"`{command}` ended with {done.returncode}:\n{done.stdout}\nThe journal says:\n{log}")
        return done.stdout

    def put(self, file: Path, to: str) -> None:
        """Copies a file into the machine."""
        self.run(f"cat > {to}", file.read_bytes())

    def until(self, command: str, why: str) -> str:
        """Runs a command again and again until it succeeds; returns what it prints then."""
        deadline = time.monotonic() + PATIENCE
        while True:
            done = self.try_run(command)
            if done.returncode == 0:
                return done.stdout
            if time.monotonic() > deadline:
                pytest.fail(f"{why}: `{command}` still fails: {done.stdout}")
            time.sleep(0.1)  # wait: between two looks


@contextlib.contextmanager
def machine() -> Iterator[Machine]:
    """Starts a machine; skips the test where that is not possible, and says why."""
    need_root()
    need_tool("unshare", "util-linux")
    need_tool("nsenter", "util-linux")
    need_tool("systemctl", "systemd")
    if not Path("/lib/systemd/systemd").exists():
        pytest.skip("no systemd (Debian: apt-get install systemd)")
    cgroup = _own_cgroup()
    unshare = "unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup"
    start = f'echo $$ > "{cgroup}/cgroup.procs"; exec {unshare} bash "$0"'
    with subprocess.Popen(["bash", "-c", start, str(INIT)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as outer:
        try:
            yield _started(outer)
        finally:
            # Its first process is a child of this one; it ends all others with it.
            outer.send_signal(signal.SIGKILL)
            outer.wait()
            _remove_cgroup(cgroup)


def _own_cgroup() -> Path:
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    roots = [Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"]
    if not roots:
        pytest.skip("no cgroup2 hierarchy is mounted, which systemd needs")
    cgroup = roots[0] / f"spillway-test-{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made, which systemd needs: {error}")
    return cgroup


def _remove_cgroup(cgroup: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            # The inner ones first; each is empty once its processes are reaped.
            for folder in sorted(cgroup.rglob("*/"), key=lambda path: len(path.parts), reverse=True):
                folder.rmdir()
            cgroup.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)  # wait: between two looks


def _started(outer: subprocess.Popen[bytes]) -> Machine:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if outer.poll() is not None:
            assert outer.stdout is not None
            said = outer.stdout.read().decode(errors="replace").strip()
            pytest.skip(f"systemd can't run in namespaces here: {said}")
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "systemd":
            started = Machine(int(children[0]))
            state = started.try_run("systemctl is-active throwaway.target")
            if state.returncode == 0:
                return started
        time.sleep(0.1)  # wait: between two looks
    pytest.fail("a systemd that was started in namespaces does not become active")
