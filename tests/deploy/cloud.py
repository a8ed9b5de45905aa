"""Terraform with providers that are on this machine, and an emulator of AWS."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from needs import ROOT, need_tool

AWS_PROVIDER = "registry.terraform.io/hashicorp/aws"
RESULTS = ROOT / "target" / "deploy"
"""What tests leave for whoever reads them afterwards."""


def provider_mirror() -> Path:
    """Returns a folder with the AWS provider; skips the test where there is none.

    TF_PLUGIN_DIR names one; else it is looked for where Terraform and machines without a network have such folders.
    """
    usual = [
        Path.home() / ".terraform.d/plugins",
        Path.home() / ".local/share/terraform/plugins",
        Path("/usr/local/share/terraform/plugins"),
        Path("/usr/share/terraform/plugins"),
        *Path("/opt").glob("*plugins*"),
        *Path("/opt").glob("terraform*/plugins"),
    ]
    told = os.environ.get("TF_PLUGIN_DIR")
    for folder in [Path(told)] if told else usual:
        if list(folder.glob(f"{AWS_PROVIDER}/5.*")):
            return folder
    pytest.skip("no provider hashicorp/aws 5: name its mirror by TF_PLUGIN_DIR (`terraform providers mirror FOLDER`)")


class Terraform:
    """The command, with its own copy of the project's Terraform files and a log of all that it said."""

    def __init__(self, folder: Path, mirror: Path | None, log: Path, environment: dict[str, str] | None = None):
        self.program = need_terraform()
        self.folder = folder
        self.log = log
        settings = folder.parent / "terraform.rc"
        installation = ""
        if mirror is not None:
            installation = f'provider_installation {{ filesystem_mirror {{ path = "{mirror}" }} }}\n'
        settings.write_text(installation + "disable_checkpoint = true\n")
        # Nothing of the person who runs the tests: no account, no plug-in cache, no variables.
        own = ("AWS_", "TF_")
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(own)}
        self.environment |= {"TF_CLI_CONFIG_FILE": str(settings), "TF_IN_AUTOMATION": "1", **(environment or {})}

    def run(self, where: str, *words: str, expect: tuple[int, ...] = (0,), timeout_s: int = 600) -> str:
        """Runs `terraform WORDS` in a folder and returns what it printed; fails on another exit code."""
        began = time.monotonic()
        done = subprocess.run(
            [self.program, f"-chdir={self.folder / where}", *words],
            env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=timeout_s, check=False,
        )
        with self.log.open("a") as log:
            log.write(f"\n$ terraform {' '.join(words)}   # {where}\n{done.stdout}")
            log.write(f"# exit code {done.returncode} after {time.monotonic() - began:.1f} s\n")
        assert done.returncode in expect, f"terraform {' '.join(words)} in {where}:\n{done.stdout[-6000:]}"
        return done.stdout

    def init(self, where: str) -> None:
        """Makes a folder ready to be used, from the mirror alone."""
        self.run(where, "init", "-input=false", "-no-color")


def need_terraform() -> str:
    """Returns the path of Terraform 1.11 or later, which knows write-only arguments; else skips the test."""
    program = need_tool("terraform", "not there; see developer.hashicorp.com/terraform/install")
    said = subprocess.run([program, "version"], capture_output=True, text=True, check=True,
                          env={**os.environ, "TF_CLI_CONFIG_FILE": os.devnull}).stdout
    version = re.search(r"v(\d+)\.(\d+)", said)
    if version is None or (int(version[1]), int(version[2])) < (1, 11):
        pytest.skip(f"needs Terraform 1.11, not {said.splitlines()[0]}")
    return program


def checkov() -> Path:
    """Returns checkov's program; skips the test if it can't be installed."""
    try:
        return installed_checkov()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"checkov can't be installed: {(error.stderr or '')[-300:]}")


def installed_checkov() -> Path:
    """Returns checkov's program, in an environment of its own that is made when its requirements change."""
    folder = ROOT / "tests/deploy/.venv-checkov"
    wanted = ROOT / "tests/deploy/requirements-checkov.txt"
    made_from = folder / "made-from-requirements.txt"
    if not made_from.exists() or made_from.read_text() != wanted.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--requirement"]
        subprocess.run([folder / "bin/python", *install, wanted], capture_output=True, text=True, check=True)
        made_from.write_text(wanted.read_text())
    return folder / "bin/checkov"


def copy_of_terraform(to: Path) -> Path:
    """Copies the project's Terraform files, without what earlier runs left beside them."""
    left = shutil.ignore_patterns(".terraform*", "*.tfstate*", "*.tfplan", "*.tfvars*", "certs")
    return Path(shutil.copytree(ROOT / "terraform", to / "terraform", ignore=left))


class Aws:
    """moto, which answers as AWS does and keeps everything in memory."""

    def __init__(self, log: Path):
        pytest.importorskip("moto", reason="no moto: tests/deploy/requirements.txt has it")
        program = ROOT / "tests/deploy/boot/emulated_aws.py"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._log = log.open("w")
        self._process = subprocess.Popen(
            [sys.executable, program, "-H", "127.0.0.1", "-p", str(port)], stdout=self._log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while not self._answers():
            assert self._process.poll() is None, f"moto ended, see {log}"
            assert time.monotonic() < deadline, f"moto does not answer, see {log}"
            time.sleep(0.2)  # wait: for a port of another process, which can only be asked

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5) as reply:
                return reply.status == 200
        except OSError:
            return False

    @property
    def environment(self) -> dict[str, str]:
        """What has Terraform's provider and the AWS SDK talk to the emulator and to nobody else."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service: str, region: str):
        """Returns a client of the AWS SDK for one of the emulated regions."""
        import boto3

        return boto3.client(service, region_name=region, endpoint_url=self.url,
                            aws_access_key_id="test", aws_secret_access_key="test")

    def stop(self) -> None:
        """Ends the emulator."""
        self._process.terminate()
        self._process.wait(timeout=30)
        self._log.close()


if __name__ == "__main__":
    # `cargo xtask test` installs it before the tests; the test of it installs what this could not, or is skipped.
    try:
        installed_checkov()
    except subprocess.CalledProcessError as error:
        print(f"note: checkov can't be installed: {(error.stderr or '')[-300:]}")
