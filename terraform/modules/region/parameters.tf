# Config and keys, which the machine fetches and looks at each minute. Keys are write-only: Terraform sends them
# and forgets them.

locals {
  parameter_path = "/spillway/${var.cluster}/${var.region}"

  # Name of the parameter, and of the file below keys_folder => which secret.
  secret_files = merge(
    local.node_files,
    var.settings.join ? { "join.token" = "join_token" } : {},
    local.is_monitored ? { "admin.tokens" = "admin_tokens" } : {},
  )
  node_files = {
    "ca.pem"       = "ca"
    "node.pem"     = "certificate"
    "node-key.pem" = "key"
    "prefix.key"   = "prefix_key"
  }

  # What each machine waits for. It takes the others as it finds them, since they come and go while it runs.
  required = concat(keys(local.node_files), ["spillway.toml"])
}

resource "aws_kms_key" "region" {
  description             = "Spillway ${var.cluster} in ${var.region}: keys, disk, log"
  enable_key_rotation     = true
  deletion_window_in_days = 7
  policy                  = data.aws_iam_policy_document.key.json
  tags                    = local.tags
}

resource "aws_kms_alias" "region" {
  name          = "alias/${local.name}"
  target_key_id = aws_kms_key.region.key_id
}

resource "aws_ssm_parameter" "secret" {
  for_each = local.secret_files

  name             = "${local.parameter_path}/${each.key}"
  description      = "Spillway: ${each.value} of the node"
  type             = "SecureString"
  key_id           = aws_kms_key.region.arn
  value_wo         = var.secrets[each.value]
  value_wo_version = var.settings.secrets_version
  tags             = local.tags
}
