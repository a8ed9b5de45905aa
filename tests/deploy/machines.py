"""Machines made of namespaces, with a network, a disk and a root folder each. Needs root."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from needs import need_root, need_tool
from polling import wait_until

FILES = Path(__file__).parent / "boot"
SUBNET = "10.99.0"


class Internet:
    """A network of namespaces: a hub, where services and clients are, and machines.

    `close` ends all that was started.
    """

    def __init__(self, folder: Path) -> None:
        need_root()
        for tool, package in [
            ("ip", "iproute2"),
            ("unshare", "util-linux"),
            ("losetup", "mount"),
            ("mkfs.xfs", "xfsprogs"),
        ]:
            need_tool(tool, package)
        self.folder = folder
        self.prefix = f"spw{os.getpid()}"
        self.hub = f"{self.prefix}-hub"
        self._namespaces: list[str] = []
        self._processes: list[subprocess.Popen] = []
        self._devices: list[str] = []
        self._add_namespace(self.hub)
        self.run_in(self.hub, "ip", "link", "add", "bridge", "type", "bridge")
        self.run_in(self.hub, "ip", "addr", "add", f"{SUBNET}.1/24", "dev", "bridge")
        self.run_in(self.hub, "ip", "link", "set", "bridge", "up")

    @property
    def address(self) -> str:
        return f"{SUBNET}.1"

    def add_network(self, number: int) -> str:
        """Makes a namespace with the address SUBNET.number; returns its name."""
        name, cable = f"{self.prefix}-{number}", f"port{number}"
        self._add_namespace(name)
        run(
            "ip",
            "-n",
            self.hub,
            "link",
            "add",
            cable,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            name,
        )
        self.run_in(self.hub, "ip", "link", "set", cable, "master", "bridge", "up")
        self.run_in(name, "ip", "addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
        self.run_in(name, "ip", "link", "set", "eth0", "up")
        # Of the metadata service, which every machine of EC2 has to itself.
        self.run_in(name, "ip", "addr", "add", "169.254.169.254/32", "dev", "lo")
        return name

    def add_disk(self, name: str) -> str:
        """Makes an empty disk and returns its device."""
        image = self.folder / f"{name}.disk"
        with image.open("wb") as file:
            file.truncate(512 << 20)
        device = run("losetup", "--find", "--show", str(image)).strip()
        self._devices.append(device)
        return device

    def start(self, namespace: str, log: str, *command: str) -> subprocess.Popen:
        with (self.folder / f"{log}.log").open("ab") as output:
            process = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def run_in(self, namespace: str, *command: str, **options: object) -> str:
        return run("ip", "netns", "exec", namespace, *command, **options)

    def close(self) -> None:
        for process in self._processes:
            end(process)
        for device in self._devices:
            subprocess.run(["losetup", "--detach", device], check=False, timeout=30)
        for name in self._namespaces:
            subprocess.run(["ip", "netns", "delete", name], check=False, timeout=30)

    def _add_namespace(self, name: str) -> None:
        run("ip", "netns", "add", name)
        self._namespaces.append(name)
        run("ip", "-n", name, "link", "set", "lo", "up")


class Machine:
    """This machine's programs on a root folder that forgets, in the network namespace `network`."""

    def __init__(
        self, internet: Internet, network: str, device: str, volume_id: str, instance_id: str
    ) -> None:
        folder = internet.folder / f"{network}-{instance_id}"
        (folder / "root").mkdir(parents=True)
        python = [sys.prefix, sys.base_prefix]
        self._init = internet.start(
            network,
            "machines",
            *["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"],
            *[str(FILES / "machine.sh"), str(folder / "root"), device, volume_id, *python],
        )
        wait_until(
            "the machine's first process runs",
            lambda: self._first_process() is not None,
            within_s=30,
        )
        self._pid = self._first_process()
        self._metadata = internet.start(
            network, "metadata", sys.executable, str(FILES / "metadata.py"), instance_id
        )
        wait_until("its metadata are served", self._serves_metadata, within_s=30)

    @property
    def root(self) -> Path:
        """Its root folder as seen from here."""
        return Path(f"/proc/{self._pid}/root")

    def run(self, *command: str, **options: object) -> str:
        return run(*self._enter(), *command, **options)

    def start(self, *command: str) -> subprocess.Popen:
        return subprocess.Popen([*self._enter(), *command], stdin=subprocess.DEVNULL)

    def install(self, source: Path | str, path: str, mode: int = 0o755) -> None:
        """Writes a file: the content of a path, or the text itself."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_bytes() if isinstance(source, Path) else source.encode()
        target.write_bytes(content)
        target.chmod(mode)

    def die(self) -> None:
        """Ends all its processes at once, as a loss of power does."""
        end(self._init)
        end(self._metadata)

    def _enter(self) -> list[str]:
        target = [
            "--target",
            str(self._pid),
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--root",
            "--wd",
        ]
        return ["nsenter", *target]

    def _first_process(self) -> int | None:
        """The child of `unshare`, once it has become what it is to stay."""
        with contextlib.suppress(OSError):
            children = (
                Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text().split()
            )
            for child in children:
                if Path(f"/proc/{child}/comm").read_text().strip() == "sleep":
                    return int(child)
        return None

    def _serves_metadata(self) -> bool:
        answer = subprocess.run(
            [*self._enter(), "curl", "-s", "--max-time", "2", "http://169.254.169.254/"],
            capture_output=True,
            timeout=30,
            check=False,
        )
        return answer.returncode == 0


def run(*command: str, stdin: str | None = None, within_s: float = 120) -> str:
    """Runs a command; returns what it printed, and fails with all of that if it fails."""
    done = subprocess.run(
        command, input=stdin or "", capture_output=True, text=True, timeout=within_s, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def end(process: subprocess.Popen) -> None:
    """Ends a process that was started as the first of its session, and what it left there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=30)


class Cloud:
    """AWS as far as a machine sees it at its start: EC2, SSM and S3 by a moto server in the hub."""

    def __init__(self, internet: Internet) -> None:
        self._internet = internet
        self.endpoint = f"http://{internet.address}:5555"
        server = [sys.executable, str(FILES / "emulated_aws.py")]
        internet.start(internet.hub, "moto", *server, "-H", internet.address, "-p", "5555")
        wait_until("moto answers", self._answers)

    def call(self, *calls: tuple[str, str, str, dict]) -> list[dict]:
        """Carries out (service, region, operation, arguments), one after the other."""
        script = [sys.executable, str(FILES / "call_cloud.py"), self.endpoint]
        return json.loads(
            self._internet.run_in(self._internet.hub, *script, stdin=json.dumps(calls))
        )

    def start_instance(self, region: str) -> str:
        placement = {"AvailabilityZone": f"{region}a"}
        arguments = {
            "ImageId": "ami-12c6146b",
            "MinCount": 1,
            "MaxCount": 1,
            "Placement": placement,
        }
        return self.call(("ec2", region, "run_instances", arguments))[0]["Instances"][0][
            "InstanceId"
        ]

    def _answers(self) -> bool:
        command = [
            "ip",
            "netns",
            "exec",
            self._internet.hub,
            "curl",
            "-s",
            "-o",
            "/dev/null",
            self.endpoint,
        ]
        return subprocess.run(command, check=False, timeout=30).returncode == 0
