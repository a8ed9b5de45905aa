"""Processes under test: started on free ports, waited for, logged, and always ended."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

START_S = 30.0
STOP_S = 10.0
POLL_S = 0.05
LOG_LINES_SHOWN = 60


class Process:
    """A running program whose output goes to a log file."""

    def __init__(self, name: str, command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
        """`environment` is added to that of this process."""
        self.name = name
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own, so that its children end with it.
                start_new_session=True,
            )

    def wait_until(self, what: str, holds: Callable[[], bool], within_s: float = START_S) -> None:
        """Returns when `holds()`; fails at the deadline or when the process ends first."""
        deadline = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: not {what} within {within_s} s\n{self.tail()}")
            # Paces the polling, and notices at once when there is nothing left to wait for.
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=POLL_S)
                raise RuntimeError(f"{self.name} ended with {code}, not {what}\n{self.tail()}")

    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Ends it at once, as a machine that dies does."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Waits for its end and returns its exit code."""
        return self._process.wait(timeout=STOP_S)

    def stop(self) -> int:
        """Asks it to end, ends it if it does not, and returns its exit code."""
        if self.is_running():
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=STOP_S)
        # Whatever of its group is left.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join(lines)


def answers_200(url: str) -> bool:
    """True when a GET of `url` is answered 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def free_ports() -> Iterator[int]:
    """Ports that nobody listens on, in rising order.

    They lie below those that the kernel gives to outgoing connections, so that none is taken
    between this check and its use by a connection of another test. Processes that started one after
    the other begin more ports apart than each needs.
    """
    first = 20_000 + os.getpid() * 211 % 8_000
    for port in range(first, first + 2_000):
        if is_free(port):
            yield port


def is_free(port: int) -> bool:
    """True when neither a connection nor the link of another node uses the port."""
    with socket.socket() as probe, socket.socket(type=socket.SOCK_DGRAM) as link:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            link.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def held(ports: Iterator[int]) -> socket.socket:
    """A socket at a free port, where nobody listens and no other process can."""
    for port in ports:
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            # Free for a server, which takes a port although a connection there has ended a moment ago.
            holder.close()
        else:
            return holder
    raise RuntimeError("no port can be held")


def consecutive(ports: Iterator[int], count: int) -> list[int]:
    """`count` free ports in a row."""
    row: list[int] = []
    for port in ports:
        row = [*row, port] if row and port == row[-1] + 1 else [port]
        if len(row) == count:
            return row
    raise RuntimeError(f"no {count} free ports in a row")
