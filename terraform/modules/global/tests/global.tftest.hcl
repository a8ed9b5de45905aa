mock_provider "aws" {
  source = "../region/tests/mocks"
}

variables {
  cluster = "test"
  balancers = {
    us-east-1    = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/a/1", address = "203.0.113.1", dns_name = "a.example", port = 8080, tls = false }
    eu-central-1 = { arn = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/net/b/2", address = "203.0.113.2", dns_name = "b.example", port = 8080, tls = false }
  }
}

run "nothing_unless_asked" {
  assert {
    condition     = length(aws_route53_record.nearest) == 0 && length(aws_globalaccelerator_accelerator.all) == 0
    error_message = "Without a name and an accelerator there is nothing to make."
  }
}

run "the_nearest_by_dns" {
  variables {
    zone_id = "Z0123456789"
    name    = "llm.example.com"
  }
  assert {
    condition     = { for region, record in aws_route53_record.nearest : region => one(record.records) } == { us-east-1 = "203.0.113.1", eu-central-1 = "203.0.113.2" }
    error_message = "Each region has its record."
  }
  assert {
    condition     = alltrue([for check in values(aws_route53_health_check.region) : check.resource_path == "/steering"])
    error_message = "Route 53 asks whether clients shall be sent there."
  }
  assert {
    condition     = output.url == "http://llm.example.com:8080"
    error_message = "${output.url} is not the name."
  }
}

run "a_place_has_its_region_and_others_the_nearest" {
  variables {
    zone_id    = "Z0123456789"
    name       = "llm.example.com"
    countries  = { DE = "eu-central-1" }
    continents = { NA = "us-east-1" }
  }
  assert {
    condition     = aws_route53_record.country["DE"].name == "llm.example.com" && aws_route53_record.nearest["us-east-1"].name == "nearest.llm.example.com"
    error_message = "Records by place and by latency need two names."
  }
  assert {
    condition     = one(aws_route53_record.anywhere[0].alias).name == "nearest.llm.example.com"
    error_message = "Whoever is in no place goes to the nearest."
  }
}

run "an_accelerator_under_a_name" {
  variables {
    enable_global_accelerator = true
    zone_id                   = "Z0123456789"
    name                      = "llm.example.com"
  }
  assert {
    condition     = length(aws_globalaccelerator_endpoint_group.region) == 2 && length(aws_route53_record.accelerated) == 1 && length(aws_route53_record.nearest) == 0
    error_message = "The name is the accelerator's."
  }
  assert {
    condition     = one(aws_globalaccelerator_endpoint_group.region["eu-central-1"].endpoint_configuration).client_ip_preservation_enabled
    error_message = "Nodes see the clients' own addresses."
  }
}

run "clients_addresses_are_kept_without_tls_alone" {
  variables {
    enable_global_accelerator = true
    balancers = {
      us-east-1 = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/a/1", address = "203.0.113.1", dns_name = "a.example", port = 443, tls = true }
    }
  }
  assert {
    condition     = !one(aws_globalaccelerator_endpoint_group.region["us-east-1"].endpoint_configuration).client_ip_preservation_enabled
    error_message = "AWS refuses that for load balancers with TLS."
  }
  assert {
    condition     = output.url == "https://a0.awsglobalaccelerator.com"
    error_message = "${output.url} is what clients use."
  }
}

run "a_place_needs_a_region_that_is_there" {
  command = plan
  variables {
    countries = { JP = "ap-northeast-1" }
  }
  expect_failures = [var.countries]
}

run "a_name_needs_a_zone" {
  command = plan
  variables {
    name = "llm.example.com"
  }
  expect_failures = [var.name]
}
