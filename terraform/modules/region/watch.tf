# Alarms: what the cluster's other regions can't tell because this one is silent.

locals {
  alarms = merge(
    {
      no-node = {
        description = "Clients of ${var.region} are led elsewhere: its node is down, full, drained or without model servers."
        namespace   = "AWS/NetworkELB"
        metric      = "HealthyHostCount"
        statistic   = "Minimum"
        operator    = "LessThanThreshold"
        period      = 60
        periods     = 5
        missing     = "breaching"
        dimensions  = { LoadBalancer = aws_lb.clients.arn_suffix, TargetGroup = aws_lb_target_group.clients.arn_suffix }
      }
      no-machine = {
        description = "${var.region} has no machine in service: none could be started, or the node does not start on it."
        namespace   = "AWS/AutoScaling"
        metric      = "GroupInServiceInstances"
        statistic   = "Minimum"
        operator    = "LessThanThreshold"
        period      = 60
        periods     = 10
        missing     = "breaching"
        dimensions  = { AutoScalingGroupName = aws_autoscaling_group.node.name }
      }
      errors = {
        description = "The log of ${var.region}'s node or of its machine's start has a line ERROR: log group ${aws_cloudwatch_log_group.node.name}."
        namespace   = local.log_metrics
        metric      = aws_cloudwatch_log_metric_filter.line["errors"].name
        statistic   = "Sum"
        operator    = "GreaterThanOrEqualToThreshold"
        period      = 300
        periods     = 1
        missing     = "notBreaching"
        dimensions  = {}
      }
    },
    var.backups == null ? {} : {
      no-backup = {
        description = "${var.region} has sent no backup to ${var.backups.bucket} for a day."
        namespace   = local.log_metrics
        metric      = aws_cloudwatch_log_metric_filter.line["backups"].name
        statistic   = "Sum"
        operator    = "LessThanThreshold"
        period      = 3600
        periods     = 24
        missing     = "breaching"
        dimensions  = {}
      }
    },
  )

  # Lines of the log that are counted: those of the node and those of `spillway-prepare`.
  log_metrics = "Spillway/${var.cluster}/${var.region}"
  log_lines = merge(
    { errors = "\" ERROR \"" },
    var.backups == null ? {} : { backups = "\"spillway-prepare: the backup is at\"" },
  )
}

resource "aws_cloudwatch_log_metric_filter" "line" {
  for_each = local.log_lines

  name           = each.key
  log_group_name = aws_cloudwatch_log_group.node.name
  pattern        = each.value

  metric_transformation {
    name      = each.key
    namespace = local.log_metrics
    value     = "1"
  }
}

resource "aws_cloudwatch_metric_alarm" "alarm" {
  for_each = local.alarms

  alarm_name          = "${local.group_name}-${each.key}"
  alarm_description   = each.value.description
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  statistic           = each.value.statistic
  comparison_operator = each.value.operator
  threshold           = 1
  period              = each.value.period
  evaluation_periods  = each.value.periods
  treat_missing_data  = each.value.missing
  dimensions          = each.value.dimensions
  alarm_actions       = var.settings.alarm_actions
  ok_actions          = var.settings.alarm_actions
  tags                = local.tags
}
