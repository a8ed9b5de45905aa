"""The Terraform files for AWS without a cloud: their form, their examples and what they cost."""

import json
import re
import subprocess

import pytest

from cloud import Terraform, checkov, copy_of_terraform
from needs import ROOT

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


def test_files_are_formatted(tmp_path):
    terraform = Terraform(copy_of_terraform(tmp_path), None, tmp_path / "terraform.log")
    terraform.run(".", "fmt", "-check", "-recursive", "-diff")


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
