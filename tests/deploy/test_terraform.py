"""The Terraform modules for AWS: their form, what they refuse, and the whole life of a cluster against an emulator.

The emulator proves that everything can be made, changed by one line, and removed, and that a second plan is empty. It boots
no machine: what a machine does is tested where its templates are rendered and run.
"""

import base64
import gzip
import json
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from cloud import RESULTS, Aws, Terraform, checkov, copy_of_terraform, provider_mirror
from needs import spillway

CLUSTER = "prod"
EXAMPLE = "examples/three-regions"
BEGIN = ["ap-northeast-1", "eu-central-1", "us-east-1"]
JOINS = "ap-southeast-1"
NAME = "llm.example.com"


@pytest.fixture(scope="module")
def terraform(tmp_path_factory) -> Terraform:
    """Terraform without a cloud."""
    folder = tmp_path_factory.mktemp("mocked")
    RESULTS.mkdir(parents=True, exist_ok=True)
    return Terraform(copy_of_terraform(folder), provider_mirror(), folder / "terraform.log")


def test_files_are_formatted(tmp_path):
    terraform = Terraform(copy_of_terraform(tmp_path), None, tmp_path / "terraform.log")
    terraform.run(".", "fmt", "-check", "-recursive", "-diff")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("module", ["mesh", "region", "global", "cluster"])
def test_a_module_by_its_own_tests(terraform, module):
    """Against a mocked provider: `terraform test` validates the module, plans, applies and tears down."""
    terraform.init(f"modules/{module}")
    said = terraform.run(f"modules/{module}", "test", "-no-color")
    assert re.search(r"Success! [1-9]\d* passed, 0 failed", said), said


def test_the_other_example_is_valid(terraform):
    """The one with three regions is applied below."""
    terraform.init("examples/five-regions-two-edge")
    terraform.run("examples/five-regions-two-edge", "validate", "-no-color")


@pytest.mark.timeout(900)
def test_checkov_finds_nothing_but_what_is_explained(tmp_path):
    folder = copy_of_terraform(tmp_path)
    done = subprocess.run(
        [checkov(), "--directory", folder, "--framework", "terraform", "--skip-download", "--quiet", "--output", "json"],
        capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert found["summary"]["passed"] > 100, found["summary"]
    failed = [(check["check_id"], check["resource"]) for check in found["results"].get("failed_checks", [])]
    assert failed == []
    for check in found["results"].get("skipped_checks", []):
        assert len(check["check_result"]["suppress_comment"]) > 10, f"{check['check_id']} at {check['resource']} has no reason"


class Keys:
    """Certificates and keys of a cluster, made by the command, and where they must not be found."""

    def __init__(self, folder: Path):
        self.folder = folder
        certs = [spillway(), "certs"]
        subprocess.run([*certs, "init", "--cluster", CLUSTER, "--dir", folder], check=True, capture_output=True)
        for region in [*BEGIN, JOINS]:
            made = [*certs, "node", "--dir", folder, "--region", region, "--node", region]
            subprocess.run(made, check=True, capture_output=True)
        (folder / f"{JOINS}.token").write_text("join-secret-5b1f7c0a94e3\n")

    def secrets(self) -> dict[str, bytes]:
        """Returns a part of each secret that has no line end in it, by the file that it is of."""
        files = [*self.folder.glob("*-key.pem"), *self.folder.glob("*.token"), self.folder / "prefix.key"]
        return {file.name: max(file.read_bytes().splitlines(), key=len) for file in files}

    def found_in(self, text: bytes) -> list[str]:
        """Returns the files whose secret stands in the text, as it is or in base64."""
        forms = {name: (secret, base64.b64encode(secret)[:-4]) for name, secret in self.secrets().items()}
        return sorted(name for name, both in forms.items() if any(form in text for form in both))


class Life:
    """The life of a cluster against an emulator: what was seen at each of its steps."""

    def __init__(self, aws: Aws, folder: Path):
        self.log = RESULTS / "terraform.log"
        self.log.write_text("")
        print(f"log of plan, apply, change and destroy: {self.log}")
        self.aws = aws
        self.terraform = Terraform(copy_of_terraform(folder), provider_mirror(), self.log, aws.environment)
        self.example = self.terraform.folder / EXAMPLE
        self.keys = Keys(self.example / "certs")
        self.written: dict[str, bytes] = {}
        zone = aws.client("route53", "us-east-1").create_hosted_zone(Name="example.com", CallerReference="test")
        self.zone = zone["HostedZone"]["Id"].split("/")[-1]
        values = {
            "package": {"url": "s3://packages/spillway-1.0.0-x86_64-linux.tar.gz", "sha256": "0" * 64},
            "name": NAME,
            "zone_id": self.zone,
        }
        (self.example / "terraform.tfvars.json").write_text(json.dumps(values))
        self.terraform.init(EXAMPLE)
        without = self.add_a_region()
        self.plan("first", expect=2)
        self.apply_first()
        self.keep("after apply")
        self.plan("second", expect=0)
        self.made = self.seen([*BEGIN, JOINS])
        self.machines = {region: self.machine(region) for region in [*BEGIN, JOINS]}
        self.records = self.records_of_name()
        (self.example / "main.tf").write_text(without)
        # What is there was looked at a moment ago.
        self.plan("removal", "-refresh=false", expect=2)
        self.removal = json.loads(self.run("show", "-json", "removal.tfplan").splitlines()[-1])
        self.run("apply", "removal.tfplan")
        self.keep("after change")
        self.left = self.seen([*BEGIN, JOINS])
        self.run("destroy", "-auto-approve")
        self.keep("after destroy")

    def run(self, *words: str, expect: int = 0) -> str:
        command, *rest = words
        unattended = [] if command == "show" else ["-input=false"]
        return self.terraform.run(EXAMPLE, command, "-no-color", *unattended, *rest, expect=(expect,))

    def plan(self, name: str, *words: str, expect: int) -> None:
        """Plans; 0 is expected where nothing is to be done, 2 where something is."""
        self.run("plan", "-detailed-exitcode", f"-out={name}.tfplan", *words, expect=expect)
        with zipfile.ZipFile(self.example / f"{name}.tfplan") as plan:
            for member in plan.namelist():
                self.written[f"{name}.tfplan {member}"] = plan.read(member)

    def apply_first(self) -> None:
        """Applies the first plan, and goes on by a new one after one error that is the emulator's.

        Seen once on a busy machine: a new instance profile was refused its role as if it had one. That is what a call which
        the SDK repeats would get; it was not traced. Every other error, and a second one, fails the tests.
        """
        said = self.terraform.run(EXAMPLE, "apply", "-no-color", "-input=false", "first.tfplan", expect=(0, 1))
        if "Apply complete!" not in said:
            errors = re.findall(r"^Error: .*", said, re.MULTILINE)
            assert errors and all("InstanceSessionsPerInstanceProfile" in error for error in errors), said[-6000:]
            self.plan("again", expect=2)
            self.run("apply", "again.tfplan")

    def keep(self, when: str) -> None:
        """Remembers the state and its backup as they are now."""
        for file in self.example.glob("*.tfstate*"):
            self.written[f"{file.name} {when}"] = file.read_bytes()

    def add_a_region(self) -> str:
        """Adds one line to the example; returns the file as it was."""
        main = self.example / "main.tf"
        before = main.read_text()
        line = f'    {JOINS} = {{ cidr = "10.4.0.0/16", edge = true, join = true }}\n'
        after = before.replace("  regions = {\n", "  regions = {\n" + line, 1)
        assert after.count("\n") == before.count("\n") + 1
        main.write_text(after)
        return before

    def seen(self, regions: list[str]) -> dict[str, dict[str, str]]:
        """Returns the parameters of each region's node, decrypted, by the last part of their names."""
        answer = {}
        for region in regions:
            client = self.aws.client("ssm", region)
            names = [item["Name"] for item in client.describe_parameters()["Parameters"]]
            found = client.get_parameters(Names=names, WithDecryption=True)["Parameters"] if names else []
            answer[region] = {item["Name"].rsplit("/", 1)[1]: item["Value"] for item in found}
        return answer

    def machine(self, region: str) -> dict:
        """Returns the launch template that the region's group starts machines from, and what they are told."""
        ec2 = self.aws.client("ec2", region)
        group = self.aws.client("autoscaling", region).describe_auto_scaling_groups()["AutoScalingGroups"][0]
        template = group["LaunchTemplate"]["LaunchTemplateId"]
        version = ec2.describe_launch_template_versions(LaunchTemplateId=template, Versions=["$Latest"])
        data = version["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        cloud_init = base64.b64decode(data["UserData"]).decode()
        script = re.search(r"content: (H4s\S+)", cloud_init)
        assert script is not None, cloud_init
        return {"group": group, "data": data, "cloud_init": cloud_init,
                "prepare": gzip.decompress(base64.b64decode(script[1])).decode(),
                "volumes": [volume["VolumeId"] for volume in ec2.describe_volumes()["Volumes"]],
                "addresses": {each["AllocationId"]: each["PublicIp"] for each in ec2.describe_addresses()["Addresses"]}}

    def records_of_name(self) -> dict[str, str]:
        """Returns the address that each region's record of the clients' name has."""
        sets = self.aws.client("route53", "us-east-1").list_resource_record_sets(HostedZoneId=self.zone)
        return {each["Region"]: each["ResourceRecords"][0]["Value"]
                for each in sets["ResourceRecordSets"] if each["Name"] == f"{NAME}." and each["Type"] == "A"}


@pytest.fixture(scope="module")
def life(tmp_path_factory):
    """Runs the whole life once; the tests below look at what was seen."""
    provider_mirror()
    RESULTS.mkdir(parents=True, exist_ok=True)
    aws = Aws(RESULTS / "moto.log")
    try:
        yield Life(aws, tmp_path_factory.mktemp("life"))
    finally:
        aws.stop()


@pytest.mark.timeout(900)
def test_a_cluster_is_made_and_a_second_plan_is_empty(life):
    """The exit codes of `plan` were looked at; here is what there was in between."""
    assert sorted(life.records) == sorted([*BEGIN, JOINS])
    for region in [*BEGIN, JOINS]:
        assert life.records[region] in life.machines[region]["addresses"].values()
        group = life.machines[region]["group"]
        assert (group["MinSize"], group["MaxSize"], group["HealthCheckType"]) == (1, 1, "EC2")
        assert len(group["TargetGroupARNs"]) == 1
        assert life.machines[region]["data"]["MetadataOptions"]["HttpTokens"] == "required"
    log = life.log.read_text()
    assert "No changes." in log and "Destroy complete!" in log


@pytest.mark.timeout(900)
def test_each_node_gets_its_own_keys_and_a_config_that_it_accepts(life, tmp_path):
    for region in BEGIN:
        seen = life.made[region]
        for name, file in {"ca.pem": "ca.pem", "prefix.key": "prefix.key", "node.pem": f"{region}.{region}.pem",
                           "node-key.pem": f"{region}.{region}-key.pem"}.items():
            text = (life.keys.folder / file).read_text()
            assert seen[name] == text, f"{name} in {region} is not {file}"
            (tmp_path / name).write_text(text)
        config = tmp_path / f"{region}.toml"
        config.write_text(seen["spillway.toml"].replace("/etc/spillway/keys", str(tmp_path)))
        checked = subprocess.run([spillway(), "config", "check", config], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr + config.read_text()
        others = re.findall(r'\[\[peer\]\]\nname = "([^"]+)"', seen["spillway.toml"])
        assert others == [other for other in BEGIN if other != region]
        assert "join_token_file" not in seen["spillway.toml"]


@pytest.mark.timeout(900)
def test_a_machine_is_told_to_take_its_region_s_address_and_disk(life):
    for region in BEGIN:
        machine = life.machines[region]
        told = dict(re.findall(r'^readonly (\w+)="([^"]*)"$', machine["prepare"], re.MULTILINE))
        assert told["volume"] in machine["volumes"]
        advertised = re.search(r'advertise = "([^:]+):7946"', life.made[region]["spillway.toml"])
        assert advertised is not None
        assert machine["addresses"][told["allocation"]] == advertised[1]
        assert machine["cloud_init"].startswith("#cloud-config\n")
        for file in life.made[region]:
            assert f'/spillway/{CLUSTER}/{region}/{file}"' in machine["prepare"]
        syntax = subprocess.run(["bash", "-n"], input=machine["prepare"], text=True, capture_output=True, check=False)
        assert syntax.returncode == 0, syntax.stderr


@pytest.mark.timeout(900)
def test_a_region_that_joins_has_a_token_and_changes_no_other_node(life):
    joins = life.made[JOINS]
    assert joins["join.token"] == (life.keys.folder / f"{JOINS}.token").read_text()
    assert 'join_token_file = "/etc/spillway/keys/join.token"' in joins["spillway.toml"]
    assert re.findall(r'\[\[peer\]\]\nname = "([^"]+)"', joins["spillway.toml"]) == BEGIN
    for region in BEGIN:
        assert JOINS not in life.made[region]["spillway.toml"]


@pytest.mark.timeout(900)
def test_one_line_removes_a_region_and_leaves_the_others_alone(life):
    changes = {change["address"]: change["change"]["actions"] for change in life.removal["resource_changes"]}
    changes = {address: actions for address, actions in changes.items() if actions not in (["no-op"], ["read"])}
    assert set(map(tuple, changes.values())) == {("delete",)}, changes
    # The others let it in no more; nothing else of theirs is touched.
    module = "module.spillway.module"
    for region in BEGIN:
        own = sorted(address for address in changes if address.startswith(f"{module}.{region}[0]."))
        rule = f'{module}.{region}[0].aws_vpc_security_group_%s_rule.quic["{JOINS}"]'
        assert own == [rule % "egress", rule % "ingress"]
    assert life.left == {**life.made, JOINS: {}}


@pytest.mark.timeout(900)
def test_destroy_leaves_nothing(life):
    for region in [*BEGIN, JOINS]:
        ec2 = life.aws.client("ec2", region)
        left = {
            "parameters": life.aws.client("ssm", region).describe_parameters()["Parameters"],
            "balancers": life.aws.client("elbv2", region).describe_load_balancers()["LoadBalancers"],
            "groups": life.aws.client("autoscaling", region).describe_auto_scaling_groups()["AutoScalingGroups"],
            "volumes": [each for each in ec2.describe_volumes()["Volumes"] if each.get("Tags")],
            "addresses": ec2.describe_addresses()["Addresses"],
            "networks": [each for each in ec2.describe_vpcs()["Vpcs"] if not each["IsDefault"]],
        }
        assert {kind: each for kind, each in left.items() if each} == {}, region
    assert life.records_of_name() == {}


@pytest.mark.timeout(900)
def test_no_secret_is_in_state_plan_or_log(life):
    secrets = life.keys.secrets()
    assert len(secrets) == len(BEGIN) + 4, "the keys of four nodes and of the CA, the prefix key, a token"
    # The search finds what is there: the emulator has the keys.
    kept = json.dumps(life.made).encode()
    assert life.keys.found_in(kept) == sorted(set(secrets) - {"ca-key.pem"})
    assert any("tfstate after apply" in name for name in life.written)
    assert any("first.tfplan tfplan" in name for name in life.written)
    for name, text in {**life.written, "log": life.log.read_bytes(), "show": json.dumps(life.removal).encode()}.items():
        assert life.keys.found_in(text) == [], f"secrets in {name}"
