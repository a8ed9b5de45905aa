"""What is installed: packages, what is in them, and what they do to a machine. docs/guides/install.md says it in words."""

import json
import subprocess
import tarfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from install_doc import blocks, fenced
from machine import Machine, machine
from needs import ROOT, need_root, need_tool
from packages import newer_packages, one, packages

pytestmark = pytest.mark.timeout(1200)

REPLICAS = "systemd-run --unit=replicas --collect /usr/bin/spillway emulate --listen 127.0.0.1:8000 --time-scale 0.01"
CHAT = (
    "curl --silent --show-error --fail http://127.0.0.1:8080/v1/chat/completions -H 'content-type: application/json'"
    """ -d '{"model":"tiny","max_tokens":3,"messages":[{"role":"user","content":"hello"}]}'"""
)

OF_THE_MACHINE = "the limit of open files allows fewer"
"""A warning about a limit that the test's machine inherits and that its systemd can't raise."""


def test_checksums_are_those_of_all_files() -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=packages(), check=True)
    named = {line.split()[1] for line in (packages() / "SHA256SUMS").read_text().splitlines()}
    assert named | {"SHA256SUMS"} == {file.name for file in packages().iterdir()}


def test_the_binary_is_static_and_names_no_folder_of_this_machine() -> None:
    binary = (packages() / "spillway").read_bytes()
    for path in [str(ROOT), str(Path.home() / ".cargo"), str(Path.home() / ".rustup")]:
        assert path.encode() not in binary
    headers = subprocess.run(
        ["readelf", "--program-headers", "--wide", packages() / "spillway"], capture_output=True, text=True, check=True
    )
    assert "LOAD" in headers.stdout and "INTERP" not in headers.stdout


def test_the_list_of_parts_is_valid_cyclonedx() -> None:
    text = one(packages(), "*.cdx.json").read_text()
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert fault is None, fault
    parts = json.loads(text)
    wrong = text.replace('"library"', '"rumour"')
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(wrong) is not None, "the schema is looked at"
    assert {"tokio", "hyper", "rustls", "spillway-node"} <= {part["name"] for part in parts["components"]}


def test_packages_hold_files_of_root_with_one_date_in_a_fixed_order() -> None:
    for pattern in ["spillway-*.tar.gz", "image-root.tar.gz"]:
        with tarfile.open(one(packages(), pattern)) as archive:
            members = archive.getmembers()
        assert len({member.mtime for member in members}) == 1
        assert not any(member.mode & 0o022 for member in members)
        private = [member.name for member in members if member.uid != 0]
        assert private == (["etc/spillway/keys", "var/lib/spillway"] if "image" in pattern else [])
    listed = subprocess.run(
        ["dpkg-deb", "--contents", one(packages(), "*.deb")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert all(line.split()[1] == "root/root" for line in listed)
    assert len({" ".join(line.split()[3:5]) for line in listed}) == 1
    files = {line.split()[5] for line in listed}
    wanted = {"man/man1/spillway.1.gz", "man/man1/spillway-run.1.gz", "bash-completion/completions/spillway"}
    assert {f"./usr/share/{name}" for name in wanted} <= files


def test_lintian_finds_no_error() -> None:
    need_tool("lintian", "lintian")
    found = subprocess.run(
        ["lintian", "--allow-root", "--fail-on=error,warning",
         one(packages(), "*.deb")], capture_output=True, text=True, check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_example_config_is_valid() -> None:
    checked = subprocess.run(
        [packages() / "spillway", "config", "check", ROOT / "deploy/debian/spillway.toml"],
        capture_output=True, text=True, check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_the_firewall_of_the_manual_is_one_that_nftables_takes() -> None:
    need_root()
    nft = need_tool("nft", "nftables")
    unshare = need_tool("unshare", "util-linux")
    rules = fenced("nft")
    for text, is_good in [(rules, True), (rules.replace("dport 7946", "dport lots"), False)]:
        # Taken for real, in a network that ends with the command.
        command = [unshare, "--net", nft, "--file", "-"]
        taken = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert (taken.returncode == 0) == is_good, taken.stderr


def test_a_package_is_installed_upgraded_removed_and_purged() -> None:
    need_tool("dpkg-deb", "dpkg")
    steps = blocks("Debian and Ubuntu")
    with machine() as here:
        here.put(one(packages(), "*.deb"), "spillway_0.1.0-1_amd64.deb")
        here.run(steps["install"])
        assert here.run("stat --format=%a:%U:%G /etc/spillway/keys").strip() == "750:root:spillway"
        assert here.try_run("systemctl is-active spillway").stdout.strip() == "inactive", "not before there is a config"

        here.run(REPLICAS)
        here.run(steps["start"])
        # `Type=notify`: it returned when the node was ready.
        here.until(CHAT, "a request is served")
        status = here.run("systemctl show spillway --property=StatusText,User,DynamicUser,SubState,WatchdogTimestamp")
        assert "SubState=running" in status and "DynamicUser=yes" in status
        assert here.run("ps -o user= -p $(systemctl show spillway --property=MainPID --value)").split()[0] != "root"
        here.until("systemctl show spillway --property=StatusText | grep 'Serves .* 1 replicas'", "the line in words")

        journal = here.run("journalctl --no-pager --output=cat --unit=spillway")
        warnings = [line for line in journal.splitlines() if " WARN " in line and OF_THE_MACHINE not in line]
        assert "serving" in journal and not warnings, "the sandbox keeps nothing from it"

        _names_need_nothing_of_the_machine(here)
        _keys_are_read_and_state_is_kept(here)
        _reload(here, steps["reload"])
        _upgrade(here, steps["upgrade"])

        here.run(steps["remove"])
        assert here.try_run("systemctl is-active spillway").returncode != 0
        assert here.try_run("test -e /usr/bin/spillway").returncode == 1
        here.run("test -e /etc/spillway/spillway.toml && test -e /var/lib/private/spillway/mark")
        here.run(steps["purge"])
        for path in ["/etc/spillway/spillway.toml", "/var/lib/spillway", "/var/lib/private/spillway"]:
            assert here.try_run(f"test -e {path}").returncode == 1, path
        assert here.try_run("systemctl cat spillway").returncode != 0


def _names_need_nothing_of_the_machine(here: Machine) -> None:
    """A static binary must load none of the machine's modules for names, whatever these are."""
    here.run("echo '127.0.0.1 gpu-a.internal' >> /etc/hosts && echo 'hosts: nowhere' > /etc/nsswitch.conf")
    assert here.try_run("getent hosts gpu-a.internal").returncode != 0
    here.run("sed -i 's/127.0.0.1:8000/gpu-a.internal:8000/' /etc/spillway/spillway.toml && systemctl reload spillway")
    here.until("curl --silent --fail http://127.0.0.1:9900/metrics | grep 'reload.* [1-9]'", "it is reloaded")
    here.run("systemctl restart spillway")
    here.until(CHAT, "a replica is found by its name")


def _keys_are_read_and_state_is_kept(here: Machine) -> None:
    """The example's cluster, as its comments have it: keys belong to root and the group, state to the node."""
    here.run("spillway certs init --cluster prod --dir certs")
    here.run("spillway certs node --dir certs --region local --node node-1")
    here.run("cd certs && mv node-1.local.pem node.pem && mv node-1.local-key.pem node-key.pem")
    files = "ca.pem node.pem node-key.pem prefix.key"
    here.run(f"cd certs && install --mode=0640 --group=spillway {files} /etc/spillway/keys")
    uncomment = r"/^# Other nodes/,$ { s/^# \(\[cluster\]\|[a-z_]* =\)/\1/; s/203.0.113.7/127.0.0.1/ }"
    here.run(f"sed -i '{uncomment}' /etc/spillway/spillway.toml")
    here.run("systemctl restart spillway && test -e /var/lib/private/spillway/log.redb")
    assert here.run("stat --format=%a /var/lib/private/spillway").strip() == "700"
    here.until(CHAT, "a request is served")


def _reload(here: Machine, command: str) -> None:
    here.run("sed -i 's/^name = \"gpu-a\"/name = \"gpu-new\"/' /etc/spillway/spillway.toml")
    here.run(command)
    here.until("curl --silent --fail http://127.0.0.1:9900/replicas | grep gpu-new", "the config is reloaded")
    here.run("cp /etc/spillway/spillway.toml good && echo 'nonsense = 1' >> /etc/spillway/spillway.toml")
    bad = here.try_run("systemctl reload spillway")
    assert bad.returncode != 0, "a bad config is told to whoever reloads"
    here.run("systemctl is-active spillway && cp good /etc/spillway/spillway.toml")
    here.until(CHAT, "a request is served all the same")


def _upgrade(here: Machine, command: str) -> None:
    here.run("touch /var/lib/private/spillway/mark && echo key > /etc/spillway/keys/own.pem")
    before = here.run("systemctl show spillway --property=MainPID --value").strip()
    newer = one(newer_packages(), "*.deb")
    here.put(newer, "spillway_0.1.0-2_amd64.deb")
    here.run(command)
    after = here.run("systemctl show spillway --property=MainPID --value").strip()
    assert after not in (before, "0")
    here.until(CHAT, "a request is served by the new binary")
    running = here.run(f"sha256sum < /proc/{after}/exe").split()[0]
    wanted = subprocess.run(["sha256sum", newer_packages() / "spillway"], capture_output=True, text=True, check=True)
    assert running == wanted.stdout.split()[0]
    here.run("grep gpu-new /etc/spillway/spillway.toml && test -e /etc/spillway/keys/own.pem")
    here.run("test -e /var/lib/spillway/mark")


def test_a_tarball_is_installed_and_removed_where_there_is_no_dpkg() -> None:
    steps = blocks("Other distributions")
    with machine() as here:
        here.put(one(packages(), "spillway-*.tar.gz"), "spillway-0.1.0-x86_64-linux.tar.gz")
        here.put(packages() / "SHA256SUMS", "SHA256SUMS")
        here.run(steps["install"])
        here.run(REPLICAS)
        here.run("systemctl start spillway")
        here.until(CHAT, "a request is served")
        here.run("echo '# mine' >> /etc/spillway/spillway.toml")
        here.run(steps["install"])
        here.run("grep '# mine' /etc/spillway/spillway.toml && systemctl is-active spillway")
        here.run("rm /etc/spillway/spillway.toml && touch /etc/spillway/spillway.toml")
        here.run(steps["remove"])
        assert here.try_run("systemctl is-active spillway").returncode != 0
        assert here.try_run("test -e /usr/bin/spillway -o -e /etc/spillway -o -e /var/lib/spillway").returncode == 1
