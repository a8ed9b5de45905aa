# What the machine may do: read its own parameters, take its own address and disk, write its own log, and be reached
# by Session Manager. AmazonSSMManagedInstanceCore is not used: it may read every parameter of the account.

data "aws_iam_policy_document" "key" {
  # checkov:skip=CKV_AWS_111:The policy of a key is about that key alone.
  # checkov:skip=CKV_AWS_356:The policy of a key is about that key alone.
  # checkov:skip=CKV_AWS_109:Without its account as the owner, nobody could manage the key.
  statement {
    sid       = "Account"
    actions   = ["kms:*"]
    resources = ["*"]

    principals {
      type        = "AWS"
      identifiers = ["arn:aws:iam::${data.aws_caller_identity.current.account_id}:root"]
    }
  }

  statement {
    sid       = "Log"
    actions   = ["kms:Encrypt*", "kms:Decrypt*", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:Describe*"]
    resources = ["*"]

    principals {
      type        = "Service"
      identifiers = ["logs.${var.region}.amazonaws.com"]
    }

    condition {
      test     = "ArnEquals"
      variable = "kms:EncryptionContext:aws:logs:arn"
      values   = ["arn:aws:logs:${var.region}:${data.aws_caller_identity.current.account_id}:log-group:/spillway/${var.cluster}/${var.region}"]
    }
  }
}

data "aws_iam_policy_document" "machine" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "node" {
  # checkov:skip=CKV_AWS_111:Session Manager's own actions know no resources; all others name theirs.
  # checkov:skip=CKV_AWS_356:Session Manager's own actions and ec2:DescribeVolumes know no resources.
  statement {
    sid       = "Parameters"
    actions   = ["ssm:GetParameter", "ssm:GetParametersByPath"]
    resources = ["arn:aws:ssm:${local.here}:parameter${local.parameter_path}", "arn:aws:ssm:${local.here}:parameter${local.parameter_path}/*"]
  }

  statement {
    sid       = "Keys"
    actions   = ["kms:Decrypt", "kms:DescribeKey"]
    resources = [aws_kms_key.region.arn]
  }

  statement {
    sid       = "EncryptedDisk"
    actions   = ["kms:CreateGrant"]
    resources = [aws_kms_key.region.arn]

    condition {
      test     = "Bool"
      variable = "kms:GrantIsForAWSResource"
      values   = ["true"]
    }
  }

  statement {
    sid       = "Disk"
    actions   = ["ec2:AttachVolume"]
    resources = [aws_ebs_volume.data.arn]
  }

  statement {
    sid       = "Address"
    actions   = ["ec2:AssociateAddress"]
    resources = ["arn:aws:ec2:${local.here}:elastic-ip/${aws_eip.node.allocation_id}"]
  }

  # To which machine: one of this region of this cluster.
  statement {
    sid       = "Machine"
    actions   = ["ec2:AttachVolume", "ec2:AssociateAddress"]
    resources = ["arn:aws:ec2:${local.here}:instance/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/spillway:cluster"
      values   = [var.cluster]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/spillway:region"
      values   = [var.region]
    }
  }

  statement {
    sid       = "AddressOfMachine"
    actions   = ["ec2:AssociateAddress"]
    resources = ["arn:aws:ec2:${local.here}:network-interface/*"]
  }

  statement {
    sid       = "Disks"
    actions   = ["ec2:DescribeVolumes"]
    resources = ["*"]
  }

  # That the node has started.
  statement {
    sid       = "Started"
    actions   = ["autoscaling:CompleteLifecycleAction"]
    resources = ["arn:aws:autoscaling:${local.here}:autoScalingGroup:*:autoScalingGroupName/${local.group_name}"]
  }

  statement {
    sid       = "Log"
    actions   = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.node.arn}:*"]
  }

  statement {
    sid = "SessionManager"
    actions = [
      "ssm:UpdateInstanceInformation",
      "ssmmessages:CreateControlChannel",
      "ssmmessages:CreateDataChannel",
      "ssmmessages:OpenControlChannel",
      "ssmmessages:OpenDataChannel",
    ]
    resources = ["*"]
  }

  dynamic "statement" {
    for_each = startswith(var.package.url, "s3://") ? [trimprefix(var.package.url, "s3://")] : []

    content {
      sid       = "Package"
      actions   = ["s3:GetObject"]
      resources = ["arn:aws:s3:::${statement.value}"]
    }
  }

  dynamic "statement" {
    for_each = var.package.kms_key_arn == null ? [] : [var.package.kms_key_arn]

    content {
      sid       = "PackageKey"
      actions   = ["kms:Decrypt"]
      resources = [statement.value]
    }
  }

  dynamic "statement" {
    for_each = var.backups == null ? [] : [var.backups]

    content {
      sid       = "Backups"
      actions   = ["s3:PutObject"]
      resources = ["arn:aws:s3:::${statement.value.bucket}/${local.backup_prefix}/*"]
    }
  }

  dynamic "statement" {
    for_each = try(var.backups.kms_key_arn, null) == null ? [] : [var.backups.kms_key_arn]

    content {
      sid       = "BackupsKey"
      actions   = ["kms:GenerateDataKey"]
      resources = [statement.value]
    }
  }
}

locals {
  backup_prefix = var.backups == null ? "" : "${var.backups.prefix}/${var.cluster}/${var.region}"

  here = "${var.region}:${data.aws_caller_identity.current.account_id}"
}

resource "aws_iam_role" "node" {
  name               = "${local.name}-${var.region}"
  assume_role_policy = data.aws_iam_policy_document.machine.json
  tags               = local.tags
}

resource "aws_iam_role_policy" "node" {
  name   = "node"
  role   = aws_iam_role.node.id
  policy = data.aws_iam_policy_document.node.json
}

resource "aws_iam_instance_profile" "node" {
  name = "${local.name}-${var.region}"
  role = aws_iam_role.node.name
  tags = local.tags
}
