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
  peers    = {}
  secrets  = { ca = "CA", certificate = "CERTIFICATE", key = "KEY", prefix_key = "PREFIX", admin_tokens = "prometheus read TOKEN" }
  settings = { cidr = "10.1.0.0/16", edge = true }
}

run "with_tls_the_patience_is_fixed" {
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, certificate_arn = "arn:aws:acm:us-east-1:123456789012:certificate/00000000-0000-0000-0000-000000000000" }
  }
  assert {
    condition     = aws_lb_listener.clients.tcp_idle_timeout_seconds != 4000
    error_message = "AWS refuses one of our own."
  }
}

run "a_restricted_balancer_lets_health_checks_of_route_53_in" {
  variables {
    client_cidrs = ["198.51.100.0/24"]
  }
  assert {
    condition     = one(aws_vpc_security_group_ingress_rule.route53[*].prefix_list_id) == "pl-0123456789abcdef0" && one(aws_vpc_security_group_ingress_rule.route53[*].from_port) == 8080
    error_message = "Without them all regions look unhealthy, and Route 53 answers with all."
  }
  assert {
    condition     = data.aws_ec2_managed_prefix_list.route53[0].name == "com.amazonaws.us-east-1.route53-healthchecks"
    error_message = "AWS keeps the addresses in a list."
  }
}

run "one_that_nobody_checks_does_not" {
  variables {
    client_cidrs   = ["198.51.100.0/24"]
    route53_checks = false
  }
  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.route53) == 0
    error_message = "With an accelerator Route 53 asks nobody."
  }
}

run "an_open_one_needs_no_rule_for_them" {
  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.route53) == 0 && length(aws_vpc_security_group_ingress_rule.clients) == 1
    error_message = "All may come."
  }
}

run "long_answers_outlast_the_balancers_patience" {
  assert {
    condition     = aws_lb_listener.clients.tcp_idle_timeout_seconds >= 3600
    error_message = "An answer may take timeouts.total_ms, an hour."
  }
}

run "dns_is_let_out" {
  variables {
    settings = {
      cidr        = "10.1.0.0/16"
      dns_cidrs   = ["192.0.2.53/32"]
      discoveries = [{ name = "gpus", dns = "gpus.internal:8000", resolver = "198.51.100.53:5353" }]
    }
  }
  assert {
    condition     = toset([for key in keys(aws_vpc_security_group_egress_rule.dns) : trimsuffix(key, " udp") if endswith(key, " udp")]) == toset(["10.1.0.0/16 53", "192.0.2.53/32 53", "198.51.100.53/32 5353"])
    error_message = "Servers of DNS in the VPC, and those that are named: ${join(", ", keys(aws_vpc_security_group_egress_rule.dns))}."
  }
  assert {
    condition     = aws_vpc_security_group_egress_rule.dns["198.51.100.53/32 5353 tcp"].from_port == 5353 && strcontains(output.config, "resolver = \"198.51.100.53:5353\"")
    error_message = "Long answers come by TCP, from the server that the config names."
  }
}

run "all_blocks_of_a_given_vpc_count" {
  variables {
    settings = { vpc_id = "vpc-1", subnet_id = "subnet-1", replicas = [{ name = "a", url = "http://100.64.0.9:8000" }] }
  }
  assert {
    condition     = toset(keys(aws_vpc_security_group_egress_rule.replicas)) == toset(["10.9.0.0/16", "100.64.0.0/16"])
    error_message = "Model servers may be in any block of the VPC."
  }
}

run "monitoring_comes_from_its_networks_with_tls_and_a_token" {
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, monitoring_cidrs = ["10.1.7.0/24"] }
  }
  assert {
    condition     = keys(aws_vpc_security_group_ingress_rule.monitoring) == ["10.1.7.0/24"] && aws_vpc_security_group_ingress_rule.monitoring["10.1.7.0/24"].from_port == 9900
    error_message = "The admin listener is open to monitoring alone."
  }
  assert {
    condition     = strcontains(output.config, "address = \"0.0.0.0:9900\"") && strcontains(output.config, "tls.certificate = \"/etc/spillway/keys/node.pem\"") && strcontains(output.config, "token_file = \"/etc/spillway/keys/admin.tokens\"")
    error_message = "The admin listener has TLS and wants tokens:\n${output.config}"
  }
  assert {
    condition     = aws_ssm_parameter.secret["admin.tokens"].type == "SecureString"
    error_message = "Tokens are secrets."
  }
}

run "without_it_the_admin_listener_is_on_loopback" {
  assert {
    condition     = strcontains(output.config, "address = \"127.0.0.1:9900\"") && length(aws_vpc_security_group_ingress_rule.monitoring) == 0 && !contains(keys(aws_ssm_parameter.secret), "admin.tokens")
    error_message = "Nobody reaches it."
  }
}

run "monitoring_needs_tokens" {
  command = plan
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, monitoring_cidrs = ["10.1.7.0/24"] }
    secrets  = { ca = "CA", certificate = "CERTIFICATE", key = "KEY", prefix_key = "PREFIX" }
  }
  expect_failures = [var.secrets]
}

run "blocks_are_of_ipv4" {
  command = plan
  variables {
    settings     = { cidr = "10.1.0.0/16", edge = true, monitoring_cidrs = ["::/0"] }
    client_cidrs = ["2001:db8::/32"]
  }
  expect_failures = [var.settings, var.client_cidrs]
}
