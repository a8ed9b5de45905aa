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

run "own_lines_go_into_the_tables_of_the_module" {
  command = plan
  variables {
    settings = {
      cidr            = "10.1.0.0/16"
      edge            = true
      country         = "US"
      trusted_proxies = ["10.1.0.0/24"]
      config          = <<-EOT
        [node]            # ours
        workers = 4
        expose_routing = true
        drain_ms = 60000

        [[tenant]]
        name = "acme"
        regions = [
          "us-east-1",
        ]
        [cluster]
        silence_ms = 2000
        [auth]
        mode = "none"
        [admin]
        names = [
          "gateway.internal",
        ]
        [limits]
        body_bytes_max = 1000000
      EOT
    }
  }
  override_resource {
    target          = aws_eip.node
    values          = { public_ip = "203.0.113.7" }
    override_during = plan
  }
  assert {
    condition     = { for table in ["node", "admin", "auth", "cluster", "limits"] : table => length(regexall("(?m)^\\[${table}\\]", output.config)) } == { node = 1, admin = 1, auth = 1, cluster = 1, limits = 1 }
    error_message = "TOML has each table once:\n${output.config}"
  }
  assert {
    condition     = strcontains(output.config, "name = \"us-east-1\"\nregion = \"us-east-1\"\nworkers = 4\nexpose_routing = true\ndrain_ms = 60000\n") && !strcontains(output.config, "drain_ms = 30000") && strcontains(output.config, "drain_notice_ms = 25000")
    error_message = "What is given counts, and the rest stays:\n${output.config}"
  }
  assert {
    condition     = strcontains(output.config, "[auth]\nmode = \"none\"\n") && !strcontains(output.config, "mode = \"keys\"")
    error_message = "[auth] is the given one:\n${output.config}"
  }
  assert {
    condition     = strcontains(output.config, "address = \"127.0.0.1:9900\"\nnames = [\n") && strcontains(output.config, "silence_ms = 2000\n")
    error_message = "[admin] and [cluster] are both ones together:\n${output.config}"
  }
  assert {
    condition     = endswith(trimspace(output.config), "[[tenant]]\nname = \"acme\"\nregions = [\n  \"us-east-1\",\n]\n[limits]\nbody_bytes_max = 1000000")
    error_message = "All else follows as it is:\n${output.config}"
  }
  assert {
    condition     = strcontains(output.config, "trusted_proxies = [\"10.1.0.0/24\"]")
    error_message = "Proxies before the load balancer may be believed."
  }
}

run "what_the_module_knows_better_is_refused" {
  command = plan
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, config = "[cluster]\nid = \"other\"" }
  }
  expect_failures = [aws_ssm_parameter.config]
}

run "in_a_table_of_its_own_too" {
  command = plan
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, monitoring_cidrs = ["10.1.7.0/24"], config = "[admin.tls]\ncertificate = \"other.pem\"" }
  }
  expect_failures = [aws_ssm_parameter.config]
}

run "a_config_of_any_length_is_a_parameter_of_one_tier" {
  command = plan
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, config = "# ${join("", [for number in range(500) : "0123456789"])}" }
  }
  assert {
    condition     = aws_ssm_parameter.config.tier == "Advanced"
    error_message = "It holds what is long."
  }
}

run "a_short_one_has_the_same_tier" {
  command = plan
  assert {
    condition     = aws_ssm_parameter.config.tier == "Advanced"
    error_message = "A parameter that changes its tier downwards is made again, and its versions begin at 1."
  }
}
