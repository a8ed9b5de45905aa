# Config and keys, which the machine fetches and looks at each minute. Keys are write-only: Terraform sends them
# and forgets them.

locals {
  parameter_path = "/spillway/${var.cluster}/${var.region}"

  # Name of the parameter => file on the machine.
  secret_files = merge(
    {
      "ca.pem"       = "ca"
      "node.pem"     = "certificate"
      "node-key.pem" = "key"
      "prefix.key"   = "prefix_key"
    },
    var.settings.join ? { "join.token" = "join_token" } : {},
  )

  # The config last: it names the other files, and a check of it reads them.
  parameters = concat(
    [for file in keys(local.secret_files) : { file = "${local.keys_folder}/${file}", name = "${local.parameter_path}/${file}" }],
    [{ file = "/etc/spillway/spillway.toml", name = "${local.parameter_path}/spillway.toml" }],
  )
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

resource "aws_ssm_parameter" "config" {
  # checkov:skip=CKV2_AWS_34:The config holds no secret, and a plan shall show what changes in it.
  name           = "${local.parameter_path}/spillway.toml"
  description    = "Spillway: config of the node"
  type           = "String"
  tier           = length(local.config) > 4000 ? "Advanced" : "Standard"
  insecure_value = local.config
  tags           = local.tags

  lifecycle {
    precondition {
      condition     = length(local.config) <= 8000
      error_message = "The config of ${var.region} has ${length(local.config)} characters, and a parameter holds 8,000: let the node find its model servers by DNS (discoveries)."
    }
  }
}

locals {
  config = templatefile("${path.module}/templates/spillway.toml.tftpl", local.template_values.config)
}
