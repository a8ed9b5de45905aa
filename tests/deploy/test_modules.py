"""The Terraform modules for AWS by their own tests, which take longest of all that needs no cloud."""

import re

import pytest

from needs import ROOT


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("module", ["mesh", "region", "global", "cluster"])
def test_a_module_by_its_own_tests(terraform, module):
    """Against a mocked provider: `terraform test` validates the module, plans, applies and tears down."""
    terraform.init(f"modules/{module}")
    said = terraform.run(f"modules/{module}", "test", "-no-color")
    assert re.search(r"Success! [1-9]\d* passed, 0 failed", said), said


def test_both_modules_know_the_same_settings_of_a_region():
    """Terraform can't share a type."""
    types = [re.search(r"(?s)\n( +)# Network: .*?\n\1volume_gib[^\n]*\n(?:\1[^\n]+\n)*", (ROOT / file).read_text())
             for file in ["terraform/modules/cluster/variables.tf", "terraform/modules/region/variables.tf"]]
    assert types[0] is not None and types[1] is not None
    assert types[0][0] == types[1][0]
