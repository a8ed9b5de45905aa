# The machine. A group of one starts another when it is lost; address, disk and name stay what they are.

resource "aws_eip" "node" {
  # checkov:skip=CKV2_AWS_19:The machine takes the address when it starts, so that its successor can, too.
  domain = "vpc"
  tags   = merge(local.tags, { Name = "${local.name}-node" })
}

resource "aws_ebs_volume" "data" {
  # checkov:skip=CKV2_AWS_9:The log is on every node, and `spillway backup` copies what counts.
  availability_zone = local.zone
  size              = var.settings.volume_gib
  type              = "gp3"
  encrypted         = true
  kms_key_id        = aws_kms_key.region.arn
  tags              = merge(local.tags, { Name = "${local.name}-data" })

  lifecycle {
    # In another zone: the machine of the one before it lets go of it only when its successor runs.
    create_before_destroy = true
  }

  timeouts {
    delete = "30m"
  }
}

# The newest image when the package was chosen. So the next machine boots the image that this one has booted; `terraform
# apply -replace` of this takes a newer one.
resource "terraform_data" "image" {
  count            = var.settings.image == null ? 1 : 0
  input            = nonsensitive(data.aws_ssm_parameter.image[0].value)
  triggers_replace = [var.package.sha256]

  lifecycle {
    ignore_changes = [input]
  }
}

data "aws_ssm_parameter" "image" {
  count = var.settings.image == null ? 1 : 0
  name  = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
}

resource "aws_cloudwatch_log_group" "node" {
  name              = "/spillway/${var.cluster}/${var.region}"
  retention_in_days = var.log_days
  kms_key_id        = aws_kms_key.region.arn
  tags              = local.tags
}

# No tags of its own: its machines get them, which is what counts.
resource "aws_launch_template" "node" {
  # checkov:skip=CKV_AWS_88:The machine needs an address to fetch its own one with; a security group guards both.
  name_prefix            = "${local.name}-"
  image_id               = var.settings.image == null ? terraform_data.image[0].output : var.settings.image
  instance_type          = var.settings.instance_types[0]
  update_default_version = true
  user_data              = base64encode(local.user_data)

  iam_instance_profile {
    arn = aws_iam_instance_profile.node.arn
  }

  network_interfaces {
    associate_public_ip_address = true
    delete_on_termination       = true
    security_groups             = [aws_security_group.node.id]
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      volume_size           = 10
      volume_type           = "gp3"
      encrypted             = true
      delete_on_termination = true
    }
  }

  monitoring {
    enabled = true
  }

  tag_specifications {
    resource_type = "instance"
    tags          = merge(local.tags, { Name = "${local.name}-node" })
  }

  lifecycle {
    precondition {
      condition     = length(local.user_data) <= 16384
      error_message = "What the machine is told at its start has ${length(local.user_data)} bytes, and EC2 takes 16,384."
    }
  }
}

resource "aws_autoscaling_group" "node" {
  # checkov:skip=CKV_AWS_153:Its one tag, which its machines get as well, is in the launch template.
  name                = local.group_name
  min_size            = 1
  max_size            = 1
  desired_capacity    = 1
  vpc_zone_identifier = [local.subnet_id]
  target_group_arns   = [aws_lb_target_group.clients.arn]
  # A region that sheds load is unhealthy for the balancer, and its machine must not be replaced for that.
  health_check_type         = "EC2"
  health_check_grace_period = 300

  enabled_metrics = ["GroupInServiceInstances"]

  # `apply` waits until the node has started, which the machine reports: it is in service only then. A machine that never
  # reports is let in after half an hour, as a node that serves must not end for a call that failed.
  wait_for_capacity_timeout = "15m"

  initial_lifecycle_hook {
    name                 = local.started_hook
    lifecycle_transition = "autoscaling:EC2_INSTANCE_LAUNCHING"
    heartbeat_timeout    = 1800
    default_result       = "CONTINUE"
  }

  # A new version is for the next machine. No instance_refresh: it would replace the nodes of all regions at once,
  # and they would lose their quorum. Output `replace` has the command for one region.
  mixed_instances_policy {
    instances_distribution {
      on_demand_allocation_strategy            = "prioritized"
      on_demand_base_capacity                  = 1
      on_demand_percentage_above_base_capacity = 100
    }

    launch_template {
      launch_template_specification {
        launch_template_id = aws_launch_template.node.id
        version            = "$Latest"
      }

      dynamic "override" {
        for_each = var.settings.instance_types

        content {
          instance_type = override.value
        }
      }
    }
  }

  # They belong to the machine before it can use them.
  depends_on = [
    aws_iam_role_policy.node,
    aws_ssm_parameter.secret,
    aws_ssm_parameter.config,
    aws_route.internet,
    aws_route_table_association.public,
    aws_vpc_security_group_egress_rule.https,
    aws_vpc_security_group_egress_rule.dns,
  ]
}

locals {
  prepare = templatefile("${path.module}/templates/prepare.sh.tftpl", local.template_values.prepare)
  user_data = templatefile("${path.module}/templates/user-data.yaml.tftpl", {
    prepare_gz_b64  = base64gzip(local.prepare)
    backup_calendar = var.backups == null ? "" : var.backups.on_calendar
  })
}
