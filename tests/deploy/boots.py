"""Three machines that boot from what modules/region tells its machines."""

import base64
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from machines import FILES, SUBNET, Cloud, Internet, Machine, run
from needs import spillway
from polling import wait_until
from renders import (
    ADMIN_NAME,
    CLUSTER,
    MONITORED,
    OPERATOR_TOKEN,
    REGIONS,
    SECRETS,
    parameter,
    render,
    values,
)

BUCKET = "packages"


class World:
    """Three regions with a machine each, booted from user data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.internet = Internet(folder)
        self.machines: dict[str, Machine] = {}
        self.instances: dict[str, str] = {}
        try:
            self._build(folder)
        except BaseException:
            self.internet.close()
            raise

    def _build(self, folder: Path) -> None:
        self.cloud = Cloud(self.internet)
        self.key, block = make_key()
        package = make_package(folder)
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        self.cloud.call(
            ("s3", "us-east-1", "create_bucket", {"Bucket": BUCKET}),
            ("s3", "us-east-1", "create_bucket", {"Bucket": "backups"}),
            (
                "s3",
                "us-east-1",
                "upload_file",
                {"Filename": str(package), "Bucket": BUCKET, "Key": package.name},
            ),
        )
        self.numbers = dict(zip(REGIONS, range(11, 14), strict=True))
        self.networks = {
            region: self.internet.add_network(number) for region, number in self.numbers.items()
        }
        self.devices = {region: self.internet.add_disk(region) for region in REGIONS}
        self.belongings = {region: self._make_belongings(region) for region in REGIONS}
        self._block = block
        self._package = {
            "package_url": f"s3://{BUCKET}/{package.name}",
            "package_sha256": digest,
        }
        self.folder = folder
        machines = {region: self._values(region) for region in REGIONS}
        rendered = render(folder / "root", machines)
        self.configs, self.user_data = rendered["config"], rendered["user_data"]
        self._put_parameters(folder / "certs")
        for region, number in self.numbers.items():
            listen = f"{self.internet.address}:{9100 + number}"
            self.internet.start(
                self.internet.hub, f"replica-{region}", spillway(), "emulate", "--listen", listen
            )

    def _values(self, region: str, join: bool = False) -> dict:
        told = {**self.belongings[region], **self._package}
        return values(region, self.numbers[region], self._block, told, join)

    def move(self, region: str, token: str) -> None:
        """Does what `terraform apply` does for another `zone` and `join = true`: another disk."""
        self.devices[region] = self.internet.add_disk(f"{region}-moved")
        volume = self.cloud.call(
            ("ec2", region, "create_volume", {"AvailabilityZone": f"{region}c", "Size": 1})
        )
        self.belongings[region]["volume_id"] = volume[0]["VolumeId"]
        self.put(region, "join.token", token, "SecureString")
        self.apply(region)

    def settle(self, region: str) -> None:
        """Does what `terraform apply` does when `join` is taken away again."""
        name = parameter(region, "join.token")
        self.cloud.call(("ssm", region, "delete_parameter", {"Name": name}))
        self.apply()

    def apply(self, joins: str | None = None) -> None:
        """Writes all configs again; one region's node joins, the others begin the cluster."""
        machines = {each: self._values(each, join=each == joins) for each in REGIONS}
        # Who began the cluster names none that joins.
        for each in set(REGIONS) - {joins}:
            peers = machines[each]["config"]["peers"]
            machines[each]["config"]["peers"] = [peer for peer in peers if peer["name"] != joins]
        rendered = render(self.folder / f"joins-{joins}", machines)
        self.configs, self.user_data = rendered["config"], rendered["user_data"]
        for each in REGIONS:
            self.put(each, "spillway.toml", self.configs[each])

    def look_at_configs(self, *regions: str) -> None:
        """Has machines fetch what was changed, as they do each minute."""
        for region in regions:
            self.machines[region].run("systemctl", "start", "spillway-config.service")

    def lose_machine(self, region: str) -> None:
        self.machines[region].die()
        lost = {"InstanceIds": [self.instances[region]]}
        self.cloud.call(("ec2", region, "terminate_instances", lost))

    def _make_belongings(self, region: str) -> dict[str, str]:
        """Makes what outlasts a machine: the node's address and disk."""
        address, volume = self.cloud.call(
            ("ec2", region, "allocate_address", {"Domain": "vpc"}),
            ("ec2", region, "create_volume", {"AvailabilityZone": f"{region}a", "Size": 1}),
        )
        return {"allocation_id": address["AllocationId"], "volume_id": volume["VolumeId"]}

    def _put_parameters(self, certs: Path) -> None:
        run(spillway(), "certs", "init", "--cluster", CLUSTER, "--dir", str(certs))
        for region in REGIONS:
            run(
                spillway(),
                "certs",
                "node",
                "--dir",
                str(certs),
                "--region",
                region,
                "--node",
                region,
            )
            files = [
                certs / "ca.pem",
                certs / f"{region}.{region}.pem",
                certs / f"{region}.{region}-key.pem",
                certs / "prefix.key",
            ]
            for name, file in zip(SECRETS, files, strict=True):
                self.put(region, name, file.read_text(), "SecureString")
            self.put(region, "spillway.toml", self.configs[region], "String")
        self.put(MONITORED, "admin.tokens", f"prometheus read {OPERATOR_TOKEN}\n", "SecureString")

    def put(self, region: str, file: str, value: str, kind: str = "String") -> None:
        arguments = {
            "Name": parameter(region, file),
            "Value": value,
            "Type": kind,
            "Overwrite": True,
        }
        self.cloud.call(("ssm", region, "put_parameter", arguments))

    def boot(self, region: str) -> None:
        """Starts an instance and does what cloud-init does with its user data."""
        instance = self.cloud.start_instance(region)
        machine = Machine(
            self.internet,
            self.networks[region],
            self.devices[region],
            self.belongings[region]["volume_id"],
            instance,
        )
        self.machines[region] = machine
        self.instances[region] = instance
        aws = shutil.which("aws", path=str(Path(sys.executable).parent))
        machine.install(f'#!/bin/sh\nexec {aws} "$@"\n', "/usr/local/bin/aws")
        machine.install(FILES / "systemctl", "/usr/local/sbin/systemctl")
        machine.install(self.cloud.endpoint, "/etc/endpoint", 0o644)
        data = yaml.safe_load(self.user_data[region])
        assert set(data) == {"write_files", "runcmd"}
        for file in data["write_files"]:
            write_file(machine, file)
        for command in data["runcmd"]:
            machine.run(*command, within_s=300)

    def spillway(self, region: str, *arguments: str) -> str:
        """Runs the command on a region's machine, as an operator there does."""
        return self.machines[region].run(*command_of(region), *arguments)

    def ask(self, region: str, *arguments: str) -> dict:
        return json.loads(self.spillway(region, *arguments, "--json"))

    def disks(self, region: str) -> dict[str, str]:
        """What tells a node that came back from one that began anew, as this region knows it."""
        return {item["key"]: item["info"]["disk"] for item in self.ask(region, "get", "nodes")["items"]}

    def detach_disk(self, region: str) -> None:
        """Detaches a region's volume, as EC2 does when its instance ends. Moto may have done so."""
        volume = self.belongings[region]["volume_id"]
        described = self.cloud.call(("ec2", region, "describe_volumes", {"VolumeIds": [volume]}))
        if described[0]["Volumes"][0]["Attachments"]:
            self.cloud.call(("ec2", region, "detach_volume", {"VolumeId": volume}))

    def log_status(self, region: str) -> dict:
        """What a node says of the log; nothing before it listens and has one."""
        # The command fails where anything is amiss, which a region that just boots may be.
        told = self.machines[region].run(
            "sh", "-c", f"{' '.join(command_of(region))} status --json || true"
        )
        return json.loads(told or "{}").get("log") or {}

    def voters(self, region: str) -> list[str]:
        status = self.log_status(region)
        return sorted(
            member["name"]
            for member in status.get("members", [])
            if member["is_voter"] and status["leader"]
        )

    def sees_all_vote(self, region: str) -> bool:
        try:
            return self.voters(region) == sorted(REGIONS)
        except AssertionError:
            # A node that was just started may not listen yet.
            return False

    def wait_until_all_vote(self) -> None:
        for region in REGIONS:
            wait_until(f"{region} sees all vote", lambda region=region: self.sees_all_vote(region))

    def request(self, region: str, **fields: object) -> list[str]:
        """The command line of a client in the hub that asks this region."""
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], **fields}
        url = f"http://{SUBNET}.{self.numbers[region]}:8080/v1/chat/completions"
        client = ["ip", "netns", "exec", self.internet.hub, "curl", "-sS", "--fail-with-body"]
        headers = [
            "-H",
            f"authorization: Bearer {self.key}",
            "-H",
            "content-type: application/json",
        ]
        return [*client, "--max-time", "60", *headers, "-d", json.dumps(body), url]

    def answers(self, region: str) -> bool:
        """True when the region answers a request."""
        command = self.request(region)
        return subprocess.run(command, capture_output=True, timeout=90, check=False).returncode == 0

    def stats(self, region: str) -> dict:
        """What the replica of this region counts."""
        url = f"http://{self.internet.address}:{9100 + self.numbers[region]}/emulator/stats"
        return json.loads(self.internet.run_in(self.internet.hub, "curl", "-sS", "--fail", url))


def command_of(region: str) -> list[str]:
    if region != MONITORED:
        return ["spillway"]
    given = {
        "SPILLWAY_ADMIN": f"https://{ADMIN_NAME}:9900",
        "SPILLWAY_CA": "/etc/spillway/keys/ca.pem",
        "SPILLWAY_TOKEN_FILE": "/etc/spillway/machine.token",
    }
    return ["env", *(f"{name}={value}" for name, value in given.items()), "spillway"]


def make_key() -> tuple[str, str]:
    made = json.loads(run(spillway(), "keys", "create", "--offline", "--tenant", "acme", "--json"))
    return made["key"], made["toml"]


def make_package(folder: Path) -> Path:
    """A Debian package with what a machine sees of the real one: command, unit, folder for keys."""
    tree = folder / "package"
    for path in ["usr/bin", "lib/systemd/system", "etc/spillway/keys", "DEBIAN"]:
        (tree / path).mkdir(parents=True)
    run("strip", "-o", str(tree / "usr/bin/spillway"), spillway())
    unit = "[Service]\nExecStart=/usr/bin/spillway run --config /etc/spillway/spillway.toml\n"
    (tree / "lib/systemd/system/spillway.service").write_text(unit)
    fields = ["Package: spillway", "Version: 0", "Architecture: all", "Description: for tests"]
    fields.append("Maintainer: tests <tests@localhost>")
    (tree / "DEBIAN/control").write_text("\n".join([*fields, ""]))
    script = "#!/bin/sh\nset -e\nchgrp spillway /etc/spillway/keys\nchmod 0750 /etc/spillway/keys\n"
    (tree / "DEBIAN/postinst").write_text(script)
    (tree / "DEBIAN/postinst").chmod(0o755)
    package = folder / "spillway.deb"
    run("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(package))
    return package


def write_file(machine: Machine, file: dict) -> None:
    """Does with an entry of `write_files` what cloud-init does."""
    assert set(file) <= {"path", "content", "permissions", "encoding"}, file
    content = file["content"]
    if "encoding" in file:
        assert file["encoding"] == "gz+b64"
        content = gzip.decompress(base64.b64decode(content)).decode()
    machine.install(content, file["path"], int(file.get("permissions", "0644"), 8))
