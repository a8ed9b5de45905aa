"""Clients beside the suite's own, which are run as programs of their own: see the folder `others`."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from world import HERE, World

OTHERS = HERE / "others"
PATIENCE_S = 240
# Nothing but the servers under test has to be in reach, so nothing else is: no model lists, no tokenizers.
ALONE = {"HTTPS_PROXY": "http://127.0.0.1:9", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

# What fails, by server and check.
Failures = dict[str, dict[str, str]]


class NotInstalled(Exception):
    """A package manager could not install what a client needs."""


def servers(world: World) -> list[str]:
    """What programs are told: the emulator itself, and the node before it."""
    return [f"direct=http://127.0.0.1:{world.tiny}", f"gateway={world.url}"]


def python_clients(world: World) -> dict[str, Failures]:
    """What fails in litellm and llama-index, by the module of its checks."""
    folder = installed(*PYTHON_PACKAGES)
    command = [sys.executable, str(OTHERS / "checks.py"), *servers(world), "--"]
    command += ["litellm_checks", "llama_index_checks"]
    return run(command, ALONE | {"PYTHONPATH": str(folder)})


def node_client(world: World) -> Failures:
    """What fails in OpenAI's library for Node.js."""
    folder = installed(*NODE_PACKAGES)
    # Beside its packages, since that is where Node.js looks for them.
    program = shutil.copy(OTHERS / "openai_node.mjs", folder)
    return run(["node", program, *servers(world)], {})


def run(command: list[str], environment: dict[str, str]) -> dict:
    """The object that a program ends its output with."""
    ended = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 0, ended.stderr[-4_000:]
    return json.loads(ended.stdout.splitlines()[-1])


def installed(files: list[str], install: Callable[[Path], list[str]]) -> Path:
    """The folder with what `files` ask for: made once, anew when they change."""
    contents = b"".join((OTHERS / file).read_bytes() for file in files)
    digest = hashlib.sha256(contents).hexdigest()[:16]
    folder = Path(sys.prefix) / f"others-{digest}"
    if not folder.is_dir():
        # Named last: a folder that was interrupted half-way is made again.
        unfinished = Path(f"{folder}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        for file in files:
            shutil.copy(OTHERS / file, unfinished)
        command = install(unfinished)
        ended = subprocess.run(
            command, cwd=unfinished, capture_output=True, text=True, timeout=PATIENCE_S
        )
        if ended.returncode != 0:
            raise NotInstalled(f"{' '.join(command[:3])}: {ended.stdout}{ended.stderr}")
        unfinished.rename(folder)
    return folder


def pip_install(folder: Path) -> list[str]:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # Compiled when imported: most of it never is.
    return [*pip, "--no-deps", "--no-compile", "--target", str(folder), "-r", "requirements.txt"]


def npm_install(_: Path) -> list[str]:
    return ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1"]


# What `installed` is told for each kind of client.
PYTHON_PACKAGES = (["requirements.txt"], pip_install)
NODE_PACKAGES = (["package.json", "package-lock.json"], npm_install)


def install_all() -> None:
    """Installs the packages of all clients. The tests install what this could not, and report why they can't."""
    for files, install in [PYTHON_PACKAGES, NODE_PACKAGES]:
        try:
            installed(files, install)
        except (NotInstalled, OSError, subprocess.TimeoutExpired) as error:
            print(f"note: {error}")


if __name__ == "__main__":
    install_all()
