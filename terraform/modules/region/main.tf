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
  admin_port  = 9900
  # "Send clients here", which is more than being ready: docs/guides/steering.md.
  health_path = "/steering"

  # Load balancers and target groups have names of up to 32 characters.
  short_name = length(local.name) <= 32 ? local.name : "${trimsuffix(substr(local.name, 0, 23), "-")}-${substr(sha1(local.name), 0, 8)}"

  listener_port = var.settings.certificate_arn == null ? local.client_port : 443
  is_monitored  = length(var.settings.monitoring_cidrs) > 0
  # As the node's certificate says. By this name the machine itself finds its admin listener, too.
  node_name = "${var.region}.${var.region}.spillway"

  keys_folder  = "/etc/spillway/keys"
  group_name   = "${local.name}-${var.region}"
  started_hook = "started"

  tags = merge(var.tags, {
    "spillway:cluster" = var.cluster
    "spillway:region"  = var.region
  })

  # Everything that the templates take, so that a test can render them without a cloud. The third one,
  # user-data.yaml.tftpl, takes `prepare_gz_b64`, the second one rendered, gzip, base64, and `backup_calendar`.
  template_values = {
    config = local.config_values
    prepare = {
      name           = var.region
      region         = var.region
      allocation_id  = aws_eip.node.allocation_id
      volume_id      = aws_ebs_volume.data.id
      package_url    = var.package.url
      package_sha256 = var.package.sha256
      log_group      = aws_cloudwatch_log_group.node.name
      parameter_path = local.parameter_path
      required       = local.required
      group_name     = local.group_name
      started_hook   = local.started_hook
      admin_name     = local.is_monitored ? local.node_name : ""
      backup_url     = var.backups == null ? "" : "s3://${var.backups.bucket}/${local.backup_prefix}"
      backup_key     = var.backups == null ? "" : var.backups.encrypt_to
    }
  }
}
