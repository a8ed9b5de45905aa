"""What `cargo xtask dist` makes, built once for all tests: with the dev profile, which takes a few minutes."""

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from needs import ROOT


@functools.cache
def packages() -> Path:
    """Returns a folder of packages: that of SPILLWAY_PACKAGES, or one that is built now."""
    given = os.environ.get("SPILLWAY_PACKAGES")
    return Path(given) if given else _dist()


@functools.cache
def newer_packages() -> Path:
    """Returns packages of a later revision, whose binary differs from that of the first in its last byte."""
    folder = _temporary()
    binary = folder / "binary"
    # Whatever follows what its head describes is never loaded.
    binary.write_bytes((packages() / "spillway").read_bytes() + b"\n")
    return _dist("--binary", str(binary), "--revision", "2")


def one(folder: Path, pattern: str) -> Path:
    """Returns the one file of a folder that a pattern fits."""
    (found,) = folder.glob(pattern)
    return found


def _dist(*arguments: str) -> Path:
    out = _temporary() / "packages"
    xtask = ["cargo", "run", "--quiet", "--locked", "--package", "xtask", "--", "dist", "--profile", "dev"]
    subprocess.run([*xtask, *arguments, "--out", str(out)], cwd=ROOT, check=True)
    return out


def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="spillway-packages-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
