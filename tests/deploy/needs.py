"""What a test needs of the machine. What is missing skips the test, and pytest's summary says why."""

import os
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
"""The project's root."""


def need_tool(name: str, package: str) -> str:
    """Returns the path of a program; skips the test where it is not installed."""
    # Debian keeps daemons where the path of ordinary users does not look.
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"no {name} (Debian: apt-get install {package})")
    return found


def need_root() -> None:
    """Skips the test unless it may make network namespaces and the like."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


def spillway() -> str:
    """Returns the path of the built command, which `cargo xtask test deploy` tells."""
    return os.environ["SPILLWAY_BIN"]
