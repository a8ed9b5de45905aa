"""The order of the tests of deployment, and Terraform for them."""

import pytest

from cloud import RESULTS, Terraform, copy_of_terraform, provider_mirror

# Files that take longest. They begin first: one that began last would go on alone.
LONGEST = [
    "test_terraform.py",
    "test_boot.py",
    "test_modules.py",
    "test_local_example.py",
    "test_image.py",
    "test_package.py",
    "test_terraform_files.py",
    "test_observability.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


@pytest.fixture(scope="module")
def terraform(tmp_path_factory) -> Terraform:
    """Terraform without a cloud."""
    folder = tmp_path_factory.mktemp("mocked")
    RESULTS.mkdir(parents=True, exist_ok=True)
    return Terraform(copy_of_terraform(folder), provider_mirror(), folder / "terraform.log")
