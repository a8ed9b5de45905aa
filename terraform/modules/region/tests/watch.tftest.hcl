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

run "a_region_that_is_silent_raises_alarms" {
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, alarm_actions = ["arn:aws:sns:us-east-1:123456789012:pager"] }
  }
  assert {
    condition     = keys(aws_cloudwatch_metric_alarm.alarm) == ["errors", "no-machine", "no-node"]
    error_message = "No machine, no node that clients may be sent to, and errors in the log."
  }
  assert {
    condition     = alltrue([for alarm in values(aws_cloudwatch_metric_alarm.alarm) : alarm.alarm_actions == toset(["arn:aws:sns:us-east-1:123456789012:pager"])])
    error_message = "They go where the region says."
  }
  assert {
    condition     = alltrue([for name in ["no-machine", "no-node"] : aws_cloudwatch_metric_alarm.alarm[name].treat_missing_data == "breaching"])
    error_message = "Whoever measures nothing has nothing."
  }
}

run "backups_go_to_a_bucket" {
  variables {
    backups = {
      bucket      = "my-backups"
      encrypt_to  = "age1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"
      kms_key_arn = "arn:aws:kms:us-east-1:123456789012:key/22222222-0000-0000-0000-000000000000"
    }
  }
  assert {
    condition     = one([for statement in data.aws_iam_policy_document.node.statement : statement.resources if statement.sid == "Backups"]) == toset(["arn:aws:s3:::my-backups/spillway/test/us-east-1/*"])
    error_message = "The machine may write there, and read nothing."
  }
  assert {
    condition     = one([for statement in data.aws_iam_policy_document.node.statement : statement.actions if statement.sid == "BackupsKey"]) == toset(["kms:GenerateDataKey"])
    error_message = "A bucket with a key of its own wants this, too."
  }
  assert {
    condition     = aws_cloudwatch_metric_alarm.alarm["no-backup"].treat_missing_data == "breaching" && aws_cloudwatch_log_metric_filter.line["backups"].pattern == "\"spillway-prepare: the backup is at\""
    error_message = "A day without a backup raises an alarm."
  }
  assert {
    condition     = strcontains(base64decode(aws_launch_template.node.user_data), "OnCalendar=hourly")
    error_message = "The machine makes one each hour."
  }
}

run "backups_are_encrypted" {
  command = plan
  variables {
    backups = { bucket = "my-backups", encrypt_to = "nobody" }
  }
  expect_failures = [var.backups]
}
