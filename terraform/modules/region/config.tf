# The node's config: what this module knows, merged with what `settings.config` says.

locals {
  own_config = "${trimspace(replace(var.settings.config, "\r\n", "\n"))}\n"

  # TOML has each of these tables once. So lines of `settings.config` below such a head go into the module's table, up to
  # the next line that begins with a bracket; a key that stands there counts instead of the module's.
  section = "(?m)^[ \\t]*\\[%s\\][ \\t]*(?:#.*)?\\n((?:[ \\t]*(?:[^\\[\\s].*)?\\n)*)"
  own_lines = {
    for table in keys(local.tables) :
    table => trimspace(join("", flatten(regexall(format(local.section, table), local.own_config))))
  }
  own_keys    = { for table, lines in local.own_lines : table => flatten(regexall("(?m)^[ \\t]*([A-Za-z0-9_.-]+)[ \\t]*=", lines)) }
  rest_config = trimspace(replace(local.own_config, "/${format(local.section, "(?:${join("|", keys(local.tables))})")}/", ""))

  # Who the node is, by which machine, certificates and other nodes know it.
  fixed_keys = {
    node    = ["name", "region"]
    admin   = local.is_monitored ? ["address", "names", "tls", "token_file"] : []
    auth    = []
    cluster = ["id", "address", "advertise", "ca", "certificate", "key", "prefix_key", "data", "join_token_file"]
  }
  refused_keys = [
    for key in concat(
      flatten([for table, own in local.own_keys : [for key in own : "${table}.${key}"]]),
      flatten(regexall("(?m)^[ \\t]*\\[([a-z]+\\.[a-z_.]+)\\]", local.own_config)),
    ) :
    key if contains(lookup(local.fixed_keys, split(".", key)[0], []), split(".", key)[1])
  ]

  tables = {
    node = {
      name    = var.region
      region  = var.region
      country = var.settings.country
      # Two checks of the load balancer and of Route 53 before anybody is refused, then what runs may finish.
      drain_notice_ms = 25000
      drain_ms        = 30000
    }
    auth = { mode = var.auth }
    admin = {
      address           = "${local.is_monitored ? "0.0.0.0" : "127.0.0.1"}:${local.admin_port}"
      names             = local.is_monitored ? [local.node_name] : null
      "tls.certificate" = local.is_monitored ? "${local.keys_folder}/node.pem" : null
      "tls.key"         = local.is_monitored ? "${local.keys_folder}/node-key.pem" : null
      token_file        = local.is_monitored ? "${local.keys_folder}/admin.tokens" : null
    }
    cluster = {
      id              = var.cluster
      address         = "0.0.0.0:${local.quic_port}"
      advertise       = "${aws_eip.node.public_ip}:${local.quic_port}"
      ca              = "${local.keys_folder}/ca.pem"
      certificate     = "${local.keys_folder}/node.pem"
      key             = "${local.keys_folder}/node-key.pem"
      prefix_key      = "${local.keys_folder}/prefix.key"
      data            = "/var/lib/spillway"
      join_token_file = var.settings.join ? "${local.keys_folder}/join.token" : null
    }
  }

  config_values = {
    tables          = local.tables
    own_lines       = local.own_lines
    own_keys        = local.own_keys
    client_address  = "0.0.0.0:${local.client_port}"
    trusted_proxies = var.settings.trusted_proxies
    # In the order of their names: the same plan each time.
    peers       = [for name, peer in var.peers : merge(peer, { name = name }) if peer.in_config]
    rtts_ms     = { for name, peer in var.peers : peer.region => var.rtts_ms[peer.region] if peer.in_config && can(var.rtts_ms[peer.region]) }
    replicas    = var.settings.replicas
    discoveries = var.settings.discoveries
    config      = local.rest_config
  }

  config = templatefile("${path.module}/templates/spillway.toml.tftpl", local.config_values)
}

resource "aws_ssm_parameter" "config" {
  # checkov:skip=CKV2_AWS_34:The config holds no secret, and a plan shall show what changes in it.
  name        = "${local.parameter_path}/spillway.toml"
  description = "Spillway: config of the node"
  type        = "String"
  # Also for a short one: the way back from Advanced to Standard makes another parameter, whose versions begin at 1.
  tier           = "Advanced"
  insecure_value = local.config
  tags           = local.tags

  lifecycle {
    precondition {
      condition     = length(local.config) <= 8000
      error_message = "The config of ${var.region} has ${length(local.config)} characters, and a parameter holds 8,000: let the node find its model servers by DNS (discoveries)."
    }

    precondition {
      condition     = length(local.refused_keys) == 0
      error_message = "config of ${var.region} sets ${join(", ", local.refused_keys)}, which this module sets: certificates, machine and other nodes go by it."
    }
  }
}
