# One node of a Spillway cluster: a machine with a fixed address, disk and name, behind a load balancer.

data "aws_caller_identity" "current" {}

data "aws_region" "current" {
  lifecycle {
    postcondition {
      condition     = self.name == var.region
      error_message = "The provider given to this module is for ${self.name}, not for ${var.region}."
    }
  }
}

locals {
  name        = "spillway-${var.cluster}"
  client_port = 8080
  quic_port   = 7946
  # "Send clients here", which is more than being ready: docs/guides/steering.md.
  health_path = "/steering"

  listener_port = var.settings.certificate_arn == null ? local.client_port : 443

  keys_folder = "/etc/spillway/keys"

  tags = merge(var.tags, {
    "spillway:cluster" = var.cluster
    "spillway:region"  = var.region
  })

  # Everything that the templates take, so that a test can render them without a cloud. The third one,
  # user-data.yaml.tftpl, takes `prepare_gz_b64` alone: the second one rendered, gzip, base64.
  template_values = {
    config = {
      name            = var.region
      region          = var.region
      country         = var.settings.country
      cluster         = var.cluster
      client_address  = "0.0.0.0:${local.client_port}"
      admin_address   = "127.0.0.1:9900"
      cluster_address = "0.0.0.0:${local.quic_port}"
      advertise       = "${aws_eip.node.public_ip}:${local.quic_port}"
      keys_folder     = local.keys_folder
      data_folder     = "/var/lib/spillway"
      join            = var.settings.join
      # In the order of their names: the same plan each time.
      peers           = [for name, peer in var.peers : merge(peer, { name = name }) if peer.in_config]
      rtts_ms         = { for name, peer in var.peers : peer.region => var.rtts_ms[peer.region] if peer.in_config && can(var.rtts_ms[peer.region]) }
      replicas        = var.settings.replicas
      discoveries     = var.settings.discoveries
      auth            = var.auth
      trusted_proxies = []
      # Two checks of the load balancer and of Route 53 before anybody is refused, then what runs may finish.
      drain_notice_ms = 25000
      drain_ms        = 30000
      config          = trimspace(var.settings.config)
    }
    prepare = {
      name           = var.region
      region         = var.region
      allocation_id  = aws_eip.node.allocation_id
      volume_id      = aws_ebs_volume.data.id
      package_url    = var.package.url
      package_sha256 = var.package.sha256
      log_group      = aws_cloudwatch_log_group.node.name
      parameters     = local.parameters
    }
  }
}
