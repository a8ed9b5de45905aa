"""The whole life of a cluster that the Terraform modules make, against an emulator of AWS.

The emulator proves that everything can be made, changed by one line, and removed, and that a second plan is empty. It boots
no machine: what a machine does is tested where its templates are rendered and run.
"""

import json
import re
import subprocess

import pytest

from cloud import RESULTS, Aws, provider_mirror
from life import BEGIN, CLUSTER, EXTENDED, JOINS, MOVES, Life
from needs import spillway


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
