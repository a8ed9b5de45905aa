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
  image_id               = var.settings.image
  instance_type          = var.settings.instance_type
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
  name                = "${local.name}-${var.region}"
  min_size            = 1
  max_size            = 1
  desired_capacity    = 1
  vpc_zone_identifier = [local.subnet_id]
  target_group_arns   = [aws_lb_target_group.clients.arn]
  # A region that sheds load is unhealthy for the balancer, and its machine must not be replaced for that.
  health_check_type         = "EC2"
  health_check_grace_period = 300

  # A new version is for the next machine. No instance_refresh: it would replace the nodes of all regions at once,
  # and they would lose their quorum. Output `replace` has the command for one region.
  launch_template {
    id      = aws_launch_template.node.id
    version = "$Latest"
  }

  # They belong to the machine before it can use them.
  depends_on = [
    aws_iam_role_policy.node,
    aws_ssm_parameter.secret,
    aws_ssm_parameter.config,
    aws_route.internet,
    aws_route_table_association.public,
    aws_vpc_security_group_egress_rule.https,
  ]
}

locals {
  prepare   = templatefile("${path.module}/templates/prepare.sh.tftpl", local.template_values.prepare)
  user_data = templatefile("${path.module}/templates/user-data.yaml.tftpl", { prepare_gz_b64 = base64gzip(local.prepare) })
}
