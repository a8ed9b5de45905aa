mock_provider "aws" {
  source = "./tests/mocks"

  override_data {
    target = data.aws_region.current
    values = { name = "us-east-1" }
  }
}

variables {
  cluster = "test"
  region  = "us-east-1"
  package = {
    url    = "s3://packages/spillway-1.0.0-x86_64-linux.tar.gz"
    sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
  }
  peers = {
    eu-west-1    = { region = "eu-west-1", address = "198.51.100.7:7946", in_config = true }
    eu-central-1 = { region = "eu-central-1", address = "198.51.100.8:7946", in_config = false }
  }
  rtts_ms = { eu-west-1 = 70 }
  secrets = { ca = "CA", certificate = "CERTIFICATE", key = "KEY", prefix_key = "PREFIX" }
  settings = {
    cidr     = "10.1.0.0/16"
    country  = "US"
    replicas = [{ name = "gpu-a", url = "http://10.1.1.11:8000", models = ["llama"], weight = 2 }]
  }
}

run "a_node_with_replicas" {
  assert {
    condition     = strcontains(output.config, "address = \"198.51.100.7:7946\"")
    error_message = "A peer of the config is missing."
  }
  assert {
    condition     = !strcontains(output.config, "198.51.100.8")
    error_message = "A node that joins later is no peer of those that began."
  }
  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.quic) == 2
    error_message = "Every other node may send packets, named in the config or not."
  }
  assert {
    condition     = length(aws_ssm_parameter.secret) == 4
    error_message = "A node that does not join has no token."
  }
  assert {
    condition     = aws_lb_target_group.clients.health_check[0].path == "/steering"
    error_message = "The load balancer asks whether clients shall be sent here."
  }
  assert {
    condition     = aws_launch_template.node.metadata_options[0].http_tokens == "required"
    error_message = "Credentials of the machine need IMDSv2."
  }
}

run "a_node_that_joins_behind_tls" {
  variables {
    settings = {
      cidr            = "10.1.0.0/16"
      edge            = true
      join            = true
      certificate_arn = "arn:aws:acm:us-east-1:123456789012:certificate/00000000-0000-0000-0000-000000000000"
    }
    secrets = { ca = "CA", certificate = "CERTIFICATE", key = "KEY", prefix_key = "PREFIX", join_token = "TOKEN" }
  }
  assert {
    condition     = strcontains(output.config, "join_token_file = \"/etc/spillway/keys/join.token\"")
    error_message = "A node that joins reads a token."
  }
  assert {
    condition     = output.balancer.port == 443 && aws_lb_listener.clients.protocol == "TLS"
    error_message = "With a certificate clients use TLS on port 443."
  }
}

run "a_join_needs_a_token" {
  command = plan
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, join = true }
  }
  expect_failures = [var.secrets]
}

run "a_vpc_is_made_or_given" {
  command = plan
  variables {
    settings = { cidr = "10.1.0.0/16", vpc_id = "vpc-1", subnet_id = "subnet-1", edge = true }
  }
  expect_failures = [var.settings]
}

run "a_package_is_known_by_its_hash" {
  command = plan
  variables {
    package = { url = "https://example.com/spillway.deb", sha256 = "latest" }
  }
  expect_failures = [var.package]
}

run "a_provider_of_another_region_is_refused" {
  command = plan
  variables {
    region = "us-west-2"
  }
  expect_failures = [data.aws_region.current]
}

run "a_region_without_model_servers_says_so" {
  command = plan
  variables {
    settings = { cidr = "10.1.0.0/16" }
  }
  expect_failures = [var.settings]
}
