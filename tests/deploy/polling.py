"""Waiting for events, and ports to listen on."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator

POLL_S = 0.1


def wait_until(what: str, holds: Callable[[], bool], within_s: float = 60.0) -> None:
    """Returns when `holds()`; fails at the deadline."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        # wait: paces the polling.
        time.sleep(POLL_S)


def is_free(
    port: int, kind: socket.SocketKind = socket.SOCK_STREAM, host: str = "127.0.0.1"
) -> bool:
    """True when a socket can be bound to it."""
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((host, port))
            return True
    return False


def free_hundreds() -> Iterator[int]:
    """Multiples of 100 with twenty ports after them, TCP and UDP, that nobody has.

    They lie below those that the kernel gives to outgoing connections.
    """
    first = 200 + os.getpid() % 60
    for hundred in range(first, 326):
        ports = range(hundred * 100, hundred * 100 + 20)
        if all(
            is_free(port, kind)
            for port in ports
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)
        ):
            yield hundred * 100
