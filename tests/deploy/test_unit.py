"""The systemd unit, and what the node tells a service manager: by a hand-made notify socket, so that each
datagram is seen. test_package.py has the same node under a real systemd."""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from needs import ROOT, need_tool, spillway

UNIT = ROOT / "deploy/systemd/spillway.service"
PATIENCE = 60.0
"""Seconds that something may take which happens at once when nothing else runs."""
WATCHDOG = 3.0
"""Seconds of the watchdog in these tests: a ping is due each second."""

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17


def test_the_unit_is_valid(tmp_path: Path) -> None:
    analyze = need_tool("systemd-analyze", "systemd")
    # Programs are looked for on this machine, where nothing is installed.
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/spillway", spillway()))
    checked = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (checked.returncode, others(checked.stderr)) == (0, "")
    unit.write_text(unit.read_text() + "ProtectSystems=strict\n")
    checked = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert "ProtectSystems" in checked.stderr, "a wrong word is found"


def others(said: str) -> str:
    """Returns what systemd says, without what a version before 254 says of pauses that grow."""
    newer = re.compile(r"Unknown key .*'(RestartSteps|RestartMaxDelaySec)'")
    return "".join(line for line in said.splitlines(keepends=True) if not newer.search(line))


def test_the_unit_starts_a_node_again_with_growing_pauses_and_after_the_clock_is_right() -> None:
    lines = UNIT.read_text().splitlines()
    assert {"RestartSec=1", "RestartSteps=8", "RestartMaxDelaySec=30", "StartLimitIntervalSec=0"} <= set(lines)
    after = next(line for line in lines if line.startswith("After="))
    assert "time-sync.target" in after.split()


def test_the_unit_is_a_sandbox() -> None:
    analyze = need_tool("systemd-analyze", "systemd")
    rated = subprocess.run(
        [analyze, "security", "--offline=yes", "--threshold=20", UNIT], capture_output=True, text=True, check=False
    )
    exposure = re.search(r"Overall exposure level for spillway\.service: ([0-9.]+)", rated.stdout)
    assert exposure and float(exposure[1]) <= 2.0, rated.stdout
    assert rated.returncode == 0


def test_the_unit_waits_longer_than_the_example_config_drains() -> None:
    unit = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and line[0] != "#")
    config = (ROOT / "deploy/debian/spillway.toml").read_text()
    drains = [int(re.search(rf"^{key} = (\d+)", config, re.MULTILINE)[1]) for key in ("drain_ms", "drain_notice_ms")]
    assert int(unit["TimeoutStopSec"]) * 1000 > sum(drains)
    assert unit["Type"] == "notify" and unit["NotifyAccess"] == "main" and unit["DynamicUser"] == "yes"
    # systemd refuses a made-up user with the name of a group that exists.
    assert unit["User"] != unit["SupplementaryGroups"]


class Told:
    """What a node tells its service manager, each datagram with when it came."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def next(self, seconds: float = PATIENCE) -> dict[str, str] | None:
        """Returns the next datagram as pairs, or None if none comes in time."""
        self._socket.settimeout(max(seconds, 0.001))
        try:
            text = self._socket.recv(65536).decode()
        except TimeoutError:
            return None
        return dict(line.split("=", 1) for line in text.splitlines())

    def until(self, **wanted: str) -> dict[str, str]:
        """Returns the first datagram with a pair that fits, by regular expression."""
        deadline = time.monotonic() + PATIENCE
        seen = []
        while (left := deadline - time.monotonic()) > 0:
            said = self.next(left)
            if said is None:
                break
            seen.append(said)
            if all(re.search(pattern, said.get(key, "")) for key, pattern in wanted.items()):
                return said
        pytest.fail(f"never told {wanted}, but {seen}")

    def count(self, key: str, seconds: float) -> int:
        """Counts datagrams with `key` for some seconds."""
        deadline = time.monotonic() + seconds
        found = 0
        while (left := deadline - time.monotonic()) > 0:
            found += key in (self.next(left) or {})
        return found

    def forget(self) -> None:
        """Drops what has come and was not looked at."""
        while self.next(0.001) is not None:
            pass


@contextlib.contextmanager
def node(folder: Path, config: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], Told]]:
    """Starts a node whose service manager is this test."""
    told = Told(folder / "notify")
    (folder / "spillway.toml").write_text(config)
    env = {**os.environ, "NOTIFY_SOCKET": str(told.path), "WATCHDOG_USEC": str(int(WATCHDOG * 1e6)), **environment}
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen([spillway(), "run", "--config", folder / "spillway.toml"], env=env, stderr=log)
    try:
        yield started, told
    finally:
        started.kill()
        started.wait()


ALONE = """
[node]
workers = 2
[[listener]]
address = "127.0.0.1:0"
[[replica]]
name = "a"
url = "http://127.0.0.1:9"
models = ["tiny"]
"""


def test_a_node_says_when_it_is_ready_that_it_works_and_that_it_ends(tmp_path: Path) -> None:
    with node(tmp_path, ALONE) as (process, told):
        # No replica answers, which keeps nobody from being ready.
        ready = told.until(READY="^1$")
        assert ready["STATUS"].startswith("Serves 0 requests")
        assert told.count("WATCHDOG", 3 * WATCHDOG) >= 3, "a ping for each third of the watchdog's time"
        process.send_signal(signal.SIGTERM)
        assert "Drains" in told.until(STOPPING="^1$")["STATUS"]
        assert process.wait(PATIENCE) == 0


def test_a_node_is_not_ready_before_it_holds_its_shares_of_limits(tmp_path: Path) -> None:
    """A second process of a node waits for its shares. Without a cluster it takes its floors after 5 s."""
    folder = str(tmp_path)
    made = [spillway(), "certs", "init", "--cluster", "test", "--dir", folder]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    made = [spillway(), "certs", "node", "--dir", folder, "--region", "here", "--node", "n"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = ALONE.replace("[node]", '[node]\nname = "n"\nregion = "here"') + f"""
[cluster]
id = "test"
address = "127.0.0.1:{port}"
ca = "ca.pem"
certificate = "n.here.pem"
key = "n.here-key.pem"
prefix_key = "prefix.key"
data = "data"
"""
    with node(tmp_path, config) as (process, told):
        told.until(READY="1")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    (tmp_path / "notify").unlink()
    # What it was told of its shares is left, and the cluster is not: another node would have to form it.
    for kept in (tmp_path / "data").iterdir():
        if kept.name != "limits":
            shutil.rmtree(kept) if kept.is_dir() else kept.unlink()
    config += '[[peer]]\nname = "m"\nregion = "there"\naddress = "127.0.0.1:9"\n'
    with node(tmp_path, config) as (process, told):
        _until_it_serves(tmp_path / "log")
        began = time.monotonic()
        told.until(READY="1")
        assert time.monotonic() - began > 2.0, "without shares to wait for it is a tenth of a second"


def _until_it_serves(log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while b"serving" not in log.read_bytes():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)  # wait: between two looks


def test_a_process_that_is_stopped_feeds_no_watchdog(tmp_path: Path) -> None:
    with node(tmp_path, ALONE) as (process, told):
        told.until(WATCHDOG="1")
        process.send_signal(signal.SIGSTOP)
        told.forget()
        assert told.count("WATCHDOG", 2 * WATCHDOG) == 0
        process.send_signal(signal.SIGCONT)
        told.until(WATCHDOG="1")


def test_one_worker_that_hangs_feeds_no_watchdog(tmp_path: Path) -> None:
    """One thread of two is held by ptrace, as a debugger would: all others go on."""
    with node(tmp_path, ALONE) as (process, told):
        told.until(WATCHDOG="1")
        with _held(_thread(process.pid, "spillway-1")):
            said = told.until(STATUS="Hangs: no answer from worker 1;")
            assert "WATCHDOG" not in said
            assert told.count("WATCHDOG", 2 * WATCHDOG) == 0
        told.until(WATCHDOG="1", STATUS="Serves")


def _thread(process: int, name: str) -> int:
    """The number of a process's thread of this name, which may have to begin yet."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for task in Path(f"/proc/{process}/task").iterdir():
            if (task / "comm").read_text().strip() == name:
                return int(task.name)
        time.sleep(0.01)  # wait: between two looks
    raise AssertionError(f"no thread {name}")


@contextlib.contextmanager
def _held(thread: int) -> Iterator[None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(request: int) -> None:
        if libc.ptrace(request, thread, None, None) != 0:
            error = os.strerror(ctypes.get_errno())
            if request == PTRACE_SEIZE:
                pytest.skip(f"no thread may be held here: {error}")
            raise OSError(error)

    ptrace(PTRACE_SEIZE)
    ptrace(PTRACE_INTERRUPT)
    try:
        os.waitpid(thread, 0x40000000)  # __WALL: threads, too
        yield
    finally:
        ptrace(PTRACE_DETACH)


def test_without_a_service_manager_nothing_is_told(tmp_path: Path) -> None:
    with node(tmp_path, ALONE, NOTIFY_SOCKET="") as (process, told):
        _until_it_serves(tmp_path / "log")
        assert told.next(1.0) is None
        assert process.poll() is None
