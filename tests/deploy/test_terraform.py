"""The Terraform modules for AWS: their form, what they refuse, and the whole life of a cluster against an emulator.

The emulator proves that everything can be made, changed by one line, and removed, and that a second plan is empty. It boots
no machine: what a machine does is tested where its templates are rendered and run.
"""

import json
import re
import subprocess

import pytest

from cloud import RESULTS, Aws, Terraform, checkov, copy_of_terraform, provider_mirror
from life import BEGIN, CLUSTER, EXTENDED, JOINS, MOVES, Life
from needs import ROOT, spillway

OWN_REGIONS = """
module "spillway" {
  source = "../../modules/cluster"

  providers = {
PROVIDERS  }

  cluster = "prod"
  package = { url = "s3://packages/spillway.tar.gz", sha256 = "" }
  secrets = { ca = "", prefix_key = "", nodes = {} }
  regions = {
    us-east-1 = { cidr = "10.1.0.0/16", discoveries = [{ name = "gpus", dns = "gpus.internal:8000" }] }
    sa-east-1 = { cidr = "10.2.0.0/16", edge = true }
  }
}
"""


@pytest.fixture(scope="module")
def terraform(tmp_path_factory) -> Terraform:
    """Terraform without a cloud."""
    folder = tmp_path_factory.mktemp("mocked")
    RESULTS.mkdir(parents=True, exist_ok=True)
    return Terraform(copy_of_terraform(folder), provider_mirror(), folder / "terraform.log")


def test_files_are_formatted(tmp_path):
    terraform = Terraform(copy_of_terraform(tmp_path), None, tmp_path / "terraform.log")
    terraform.run(".", "fmt", "-check", "-recursive", "-diff")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("module", ["mesh", "region", "global", "cluster"])
def test_a_module_by_its_own_tests(terraform, module):
    """Against a mocked provider: `terraform test` validates the module, plans, applies and tears down."""
    terraform.init(f"modules/{module}")
    said = terraform.run(f"modules/{module}", "test", "-no-color")
    assert re.search(r"Success! [1-9]\d* passed, 0 failed", said), said


def test_regions_are_those_that_the_script_was_given(terraform):
    """The six of the repository, and others: fewer providers, and a region that is not among the six."""
    cluster = terraform.folder / "modules/cluster"
    kept = (cluster / "regions.tf").read_text()
    six = re.findall(r'(?m)^module "([a-z0-9-]+-\d)"', kept)
    assert len(six) == 6
    subprocess.run([cluster / "regions.sh", *six], check=True, capture_output=True)
    assert (cluster / "regions.tf").read_text() == kept

    own = ["us-east-1", "sa-east-1"]
    root = terraform.folder / "examples/own-regions"
    root.mkdir()
    providers = subprocess.run([cluster / "regions.sh", *own], check=True, capture_output=True, text=True).stdout
    (root / "providers.tf").write_text(providers)
    given = "".join(re.findall(r"(?m)^#( +aws\.\S+ = aws\.\S+\n)", providers))
    assert given.count("\n") == len(own)
    (root / "main.tf").write_text(OWN_REGIONS.replace("PROVIDERS", given))
    try:
        terraform.init("examples/own-regions")
        terraform.run("examples/own-regions", "validate", "-no-color")
    finally:
        subprocess.run([cluster / "regions.sh", *six], check=True, capture_output=True)


def test_both_modules_know_the_same_settings_of_a_region():
    """Terraform can't share a type."""
    types = [re.search(r"(?s)\n( +)# Network: .*?\n\1volume_gib[^\n]*\n(?:\1[^\n]+\n)*", (ROOT / file).read_text())
             for file in ["terraform/modules/cluster/variables.tf", "terraform/modules/region/variables.tf"]]
    assert types[0] is not None and types[1] is not None
    assert types[0][0] == types[1][0]


def test_the_page_of_costs_has_all_that_is_made():
    """A resource that is new gets a row there, or stands here among those that AWS takes nothing for."""
    page = (ROOT / "docs/guides/costs.md").read_text()
    made = {kind for file in (ROOT / "terraform/modules").rglob("*.tf")
            for kind in re.findall(r'(?m)^resource "(aws_\w+)"', file.read_text())}
    free = {"aws_vpc", "aws_subnet", "aws_internet_gateway", "aws_route", "aws_route_table", "aws_route_table_association",
            "aws_default_security_group", "aws_security_group", "aws_vpc_security_group_ingress_rule",
            "aws_vpc_security_group_egress_rule", "aws_iam_role", "aws_iam_role_policy", "aws_iam_instance_profile"}
    assert sorted(kind for kind in made - free if f"`{kind}`" not in page) == []
    region = page.split("## A region")[1].split("## ")[0]
    *parts, together = (float(cell) for cell in re.findall(r"\| \**([\d.]+)\** \|$", region, re.MULTILINE))
    assert sum(parts) == pytest.approx(together)


def test_the_other_example_is_valid(terraform):
    """The one with three regions is applied below."""
    terraform.init("examples/five-regions-two-edge")
    terraform.run("examples/five-regions-two-edge", "validate", "-no-color")


@pytest.mark.timeout(1800)
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


@pytest.mark.timeout(1800)
def test_a_cluster_is_made_and_a_second_plan_is_empty(life):
    """The exit codes of `plan` were looked at; here is what there was in between."""
    assert sorted(life.records) == sorted([*BEGIN, JOINS])
    for region in [*BEGIN, JOINS]:
        assert life.records[region] in life.machines[region]["addresses"].values()
        group = life.machines[region]["group"]
        assert (group["MinSize"], group["MaxSize"], group["HealthCheckType"]) == (1, 1, "EC2")
        assert len(group["TargetGroupARNs"]) == 1
        assert life.machines[region]["data"]["MetadataOptions"]["HttpTokens"] == "required"
        assert life.machines[region]["data"]["ImageId"].startswith("ami-"), "an image that stays"
        assert len(group["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]) > 1
    log = life.log.read_text()
    assert "No changes." in log and "Destroy complete!" in log


@pytest.mark.timeout(1800)
def test_each_node_gets_its_own_keys_and_a_config_that_it_accepts(life, tmp_path):
    for region in BEGIN:
        seen = life.made[region]
        for name, file in {"ca.pem": "ca.pem", "prefix.key": "prefix.key", "node.pem": f"{region}.{region}.pem",
                           "node-key.pem": f"{region}.{region}-key.pem"}.items():
            text = (life.keys.folder / file).read_text()
            assert seen[name] == text, f"{name} in {region} is not {file}"
            (tmp_path / name).write_text(text)
        (tmp_path / "admin.tokens").write_text(seen.get("admin.tokens", ""))
        config = tmp_path / f"{region}.toml"
        config.write_text(seen["spillway.toml"].replace("/etc/spillway/keys", str(tmp_path)))
        checked = subprocess.run([spillway(), "config", "check", config], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr + config.read_text()
        others = re.findall(r'\[\[peer\]\]\nname = "([^"]+)"', seen["spillway.toml"])
        assert others == [other for other in BEGIN if other != region]
        assert "join_token_file" not in seen["spillway.toml"]
    extended = life.made[EXTENDED]["spillway.toml"]
    assert "expose_routing = true" in extended and 'address = "0.0.0.0:9900"' in extended
    assert life.made[EXTENDED]["admin.tokens"] == (life.keys.folder / "admin.tokens").read_text()


@pytest.mark.timeout(1800)
def test_a_machine_is_told_to_take_its_region_s_address_and_disk(life):
    for region in BEGIN:
        machine = life.machines[region]
        told = dict(re.findall(r'^readonly (\w+)="([^"]*)"$', machine["prepare"], re.MULTILINE))
        assert told["volume"] in machine["volumes"]
        advertised = re.search(r'advertise = "([^:]+):7946"', life.made[region]["spillway.toml"])
        assert advertised is not None
        assert machine["addresses"][told["allocation"]] == advertised[1]
        assert machine["cloud_init"].startswith("#cloud-config\n")
        assert told["parameters"] == f"/spillway/{CLUSTER}/{region}"
        required = re.search(r"(?m)^readonly required=\((.*)\)$", machine["prepare"])
        assert required is not None and set(required[1].split()) <= set(life.made[region])
        syntax = subprocess.run(["bash", "-n"], input=machine["prepare"], text=True, capture_output=True, check=False)
        assert syntax.returncode == 0, syntax.stderr


@pytest.mark.timeout(1800)
def test_a_region_that_joins_has_a_token_and_changes_no_other_node(life):
    joins = life.made[JOINS]
    assert joins["join.token"] == (life.keys.folder / f"{JOINS}.token").read_text()
    assert 'join_token_file = "/etc/spillway/keys/join.token"' in joins["spillway.toml"]
    assert re.findall(r'\[\[peer\]\]\nname = "([^"]+)"', joins["spillway.toml"]) == BEGIN
    for region in BEGIN:
        assert JOINS not in life.made[region]["spillway.toml"]


@pytest.mark.timeout(1800)
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


@pytest.mark.timeout(1800)
def test_another_zone_is_another_disk_of_that_region_alone(life):
    changes = {change["address"]: change["change"]["actions"] for change in life.move["resource_changes"]}
    changes = {address: actions for address, actions in changes.items() if actions not in (["no-op"], ["read"])}
    module = "module.spillway.module"
    # The others forget the peer, which the cluster tells them of from now on.
    others = {address: actions for address, actions in changes.items() if f".{MOVES}[0]." not in address}
    assert others == {f"{module}.{region}[0].aws_ssm_parameter.config": ["update"] for region in BEGIN if region != MOVES}
    own = {address.split("[0].", 1)[1]: actions for address, actions in changes.items() if address not in others}
    assert own["aws_ebs_volume.data"] == ["create", "delete"]
    assert own[f'aws_subnet.public["{MOVES}b"]'] == ["create"] and own['aws_subnet.public["any"]'] == ["delete"]
    assert own["aws_lb.clients"] == ["delete", "create"]
    assert own["aws_autoscaling_group.node"] == ["update"]
    assert not [address for address in own if address.startswith(("aws_eip.", "aws_kms_key.", "aws_iam_role."))]

    before, after = life.machines[MOVES], life.moved["machine"]
    assert after["addresses"] == before["addresses"], "clients and nodes find it where it was"
    assert life.moved["records"][MOVES] == life.records[MOVES]
    assert list(after["volumes"].values()) == [f"{MOVES}b"] and set(after["volumes"]).isdisjoint(before["volumes"])
    assert f'readonly volume="{next(iter(after["volumes"]))}"' in after["prepare"]
    assert life.moved["parameters"]["join.token"] == (life.keys.folder / f"{MOVES}.token").read_text()


@pytest.mark.timeout(1800)
def test_destroy_leaves_nothing(life):
    for region in [*BEGIN, JOINS]:
        ec2 = life.aws.client("ec2", region)
        left = {
            "parameters": life.seen([region])[region],
            "balancers": life.aws.client("elbv2", region).describe_load_balancers()["LoadBalancers"],
            "groups": life.aws.client("autoscaling", region).describe_auto_scaling_groups()["AutoScalingGroups"],
            "volumes": [each for each in ec2.describe_volumes()["Volumes"] if each.get("Tags")],
            "addresses": ec2.describe_addresses()["Addresses"],
            "networks": [each for each in ec2.describe_vpcs()["Vpcs"] if not each["IsDefault"]],
        }
        assert {kind: each for kind, each in left.items() if each} == {}, region
    assert life.records_of_name() == {}


@pytest.mark.timeout(1800)
def test_no_secret_is_in_state_plan_or_log(life):
    secrets = life.keys.secrets()
    assert len(secrets) == len(BEGIN) + 6, "the keys of four nodes and of the CA, the prefix key, three files of tokens"
    # The search finds what is there: the emulator has the keys.
    kept = json.dumps([life.made, life.moved["parameters"]]).encode()
    assert life.keys.found_in(kept) == sorted(set(secrets) - {"ca-key.pem"})
    assert any("tfstate after apply" in name for name in life.written)
    assert any("first.tfplan tfplan" in name for name in life.written)
    for name, text in {**life.written, "log": life.log.read_bytes(), "show": json.dumps(life.removal).encode()}.items():
        assert life.keys.found_in(text) == [], f"secrets in {name}"
