mock_provider "aws" {
  alias  = "us-east-1"
  source = "../region/tests/mocks"

  override_data {
    target = module.us-east-1[0].data.aws_region.current
    values = { name = "us-east-1" }
  }
}

mock_provider "aws" {
  alias  = "us-west-2"
  source = "../region/tests/mocks"

  override_data {
    target = module.us-west-2[0].data.aws_region.current
    values = { name = "us-west-2" }
  }
}

mock_provider "aws" {
  alias  = "eu-central-1"
  source = "../region/tests/mocks"

  override_data {
    target = module.eu-central-1[0].data.aws_region.current
    values = { name = "eu-central-1" }
  }
}

mock_provider "aws" {
  alias  = "eu-west-1"
  source = "../region/tests/mocks"

  override_data {
    target = module.eu-west-1[0].data.aws_region.current
    values = { name = "eu-west-1" }
  }
}

mock_provider "aws" {
  alias  = "ap-southeast-1"
  source = "../region/tests/mocks"

  override_data {
    target = module.ap-southeast-1[0].data.aws_region.current
    values = { name = "ap-southeast-1" }
  }
}

mock_provider "aws" {
  alias  = "ap-northeast-1"
  source = "../region/tests/mocks"

  override_data {
    target = module.ap-northeast-1[0].data.aws_region.current
    values = { name = "ap-northeast-1" }
  }
}

variables {
  cluster = "test"
  package = {
    url    = "https://packages.example/spillway.tar.gz"
    sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
  }
  regions = {
    us-east-1    = { cidr = "10.1.0.0/16", replicas = [{ name = "a", url = "http://10.1.0.10:8000" }] }
    eu-central-1 = { cidr = "10.2.0.0/16", replicas = [{ name = "a", url = "http://10.2.0.10:8000" }] }
    eu-west-1    = { cidr = "10.3.0.0/16", edge = true }
  }
  secrets = {
    ca         = "CA"
    prefix_key = "PREFIX"
    nodes = {
      us-east-1      = { certificate = "C1", key = "K1" }
      eu-central-1   = { certificate = "C2", key = "K2" }
      eu-west-1      = { certificate = "C3", key = "K3" }
      ap-southeast-1 = { certificate = "C4", key = "K4", join_token = "T4" }
    }
  }
  zone_id = "Z0123456789"
  name    = "llm.example.com"
}

run "each_region_has_a_node_that_knows_the_others" {
  assert {
    condition     = keys(output.regions) == ["eu-central-1", "eu-west-1", "us-east-1"]
    error_message = "There is one node in each region."
  }
  assert {
    condition     = strcontains(output.configs["us-east-1"], "name = \"eu-west-1\"") && strcontains(output.configs["us-east-1"], "name = \"eu-central-1\"")
    error_message = "A node that begins the cluster names all others that do."
  }
  assert {
    condition     = !strcontains(output.configs["us-east-1"], "join_token_file")
    error_message = "Who begins the cluster joins none."
  }
  assert {
    condition     = strcontains(output.configs["eu-central-1"], "country = \"DE\"")
    error_message = "A region's country is known."
  }
  assert {
    condition     = output.url == "http://llm.example.com:8080"
    error_message = "Clients have one name."
  }
}

run "one_line_adds_a_region_that_joins" {
  variables {
    regions = {
      us-east-1      = { cidr = "10.1.0.0/16", replicas = [{ name = "a", url = "http://10.1.0.10:8000" }] }
      eu-central-1   = { cidr = "10.2.0.0/16", replicas = [{ name = "a", url = "http://10.2.0.10:8000" }] }
      eu-west-1      = { cidr = "10.3.0.0/16", edge = true }
      ap-southeast-1 = { cidr = "10.4.0.0/16", edge = true, join = true }
    }
  }
  assert {
    condition     = strcontains(output.configs["ap-southeast-1"], "join_token_file")
    error_message = "It joins by a token."
  }
  assert {
    condition     = !strcontains(output.configs["us-east-1"], "ap-southeast-1")
    error_message = "The configs of the others stay as they are: the cluster tells them."
  }
}

run "an_accelerator_with_tls_hides_clients_addresses" {
  command = plan
  variables {
    regions = {
      us-east-1 = { cidr = "10.1.0.0/16", discoveries = [{ name = "a", dns = "a:80" }], certificate_arn = "arn:aws:acm:us-east-1:123456789012:certificate/00000000-0000-0000-0000-000000000000" }
    }
    enable_global_accelerator = true
    client_cidrs              = ["198.51.100.0/24"]
  }
  expect_failures = [var.client_cidrs]
}

run "a_region_without_a_provider_is_refused" {
  command = plan
  variables {
    regions = { mars-north-1 = { cidr = "10.1.0.0/16", edge = true }, us-east-1 = { cidr = "10.2.0.0/16", discoveries = [{ name = "a", dns = "a:80" }] } }
  }
  expect_failures = [var.regions]
}

run "a_region_needs_a_certificate" {
  command = plan
  variables {
    secrets = { ca = "CA", prefix_key = "PREFIX", nodes = {} }
  }
  expect_failures = [var.secrets]
}
