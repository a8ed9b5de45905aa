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

run "the_first_zone_that_has_the_machine" {
  assert {
    condition     = aws_subnet.public["any"].availability_zone == "zone-b"
    error_message = "zone-a does not have it, and zone-b comes before zone-c."
  }
  assert {
    condition     = tolist(data.aws_ec2_instance_type_offerings.zones[0].filter)[0].values == toset(["c7i.large"])
    error_message = "It asks for the first type."
  }
}

run "the_image_of_the_package_stays" {
  override_data {
    target = data.aws_ssm_parameter.image
    values = { value = "ami-0000000000000000b" }
  }
  assert {
    condition     = aws_launch_template.node.image_id == "ami-0000000000000000a"
    error_message = "The next machine boots what this one has booted, whatever is the newest: ${aws_launch_template.node.image_id}."
  }
}

run "another_package_takes_the_newest_image" {
  variables {
    package = {
      url    = "s3://packages/spillway-1.0.1-x86_64-linux.tar.gz"
      sha256 = "1111111111111111111111111111111111111111111111111111111111111111"
    }
  }
  override_data {
    target = data.aws_ssm_parameter.image
    values = { value = "ami-0000000000000000b" }
  }
  assert {
    condition     = aws_launch_template.node.image_id == "ami-0000000000000000b"
    error_message = "Both are tried together."
  }
}

run "another_zone_is_another_subnet_and_disk" {
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, zone = "us-east-1c" }
  }
  assert {
    condition     = keys(aws_subnet.public) == ["us-east-1c"] && aws_subnet.public["us-east-1c"].availability_zone == "us-east-1c" && aws_ebs_volume.data.availability_zone == "us-east-1c"
    error_message = "Subnet and disk are in the zone that was chosen."
  }
  assert {
    condition     = aws_subnet.public["us-east-1c"].cidr_block == "10.1.48.0/20"
    error_message = "Both subnets are there for a while: ${aws_subnet.public["us-east-1c"].cidr_block}."
  }
  assert {
    condition     = one(aws_lb.clients.subnet_mapping).subnet_id == aws_subnet.public["us-east-1c"].id
    error_message = "The load balancer goes, too."
  }
}

run "a_zone_of_another_region_is_refused" {
  command = plan
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, zone = "us-west-2a" }
  }
  expect_failures = [var.settings]
}

run "a_machine_of_several_types" {
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, instance_types = ["m7i.xlarge", "m6i.xlarge"] }
  }
  assert {
    condition     = one(one(aws_autoscaling_group.node.mixed_instances_policy).launch_template).override[*].instance_type == tolist(["m7i.xlarge", "m6i.xlarge"])
    error_message = "A machine that can't be had is replaced by the next type."
  }
}

run "an_image_is_an_ami" {
  command = plan
  variables {
    settings = { cidr = "10.1.0.0/16", edge = true, image = "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64" }
  }
  expect_failures = [var.settings]
}

run "a_package_of_debian_needs_an_image_with_dpkg" {
  command = plan
  variables {
    package = { url = "s3://packages/spillway.deb", sha256 = "0000000000000000000000000000000000000000000000000000000000000000" }
  }
  expect_failures = [var.package]
}

run "a_package_of_debian_on_such_an_image" {
  variables {
    package = {
      url         = "s3://packages/spillway.deb"
      sha256      = "0000000000000000000000000000000000000000000000000000000000000000"
      kms_key_arn = "arn:aws:kms:us-east-1:123456789012:key/11111111-0000-0000-0000-000000000000"
    }
    settings = { cidr = "10.1.0.0/16", edge = true, image = "ami-0123456789abcdef0" }
  }
  assert {
    condition     = aws_launch_template.node.image_id == "ami-0123456789abcdef0"
    error_message = "The image is the one that was named."
  }
  assert {
    condition     = one([for statement in data.aws_iam_policy_document.node.statement : statement.resources if statement.sid == "PackageKey"]) == toset(["arn:aws:kms:us-east-1:123456789012:key/11111111-0000-0000-0000-000000000000"])
    error_message = "The machine may decrypt the package."
  }
}

run "the_longest_name" {
  variables {
    cluster = "a-cluster-with-a-name-of-32-char"
  }
  assert {
    condition     = length(var.cluster) == 32 && length(aws_lb.clients.name) <= 32 && length(aws_lb_target_group.clients.name) <= 32
    error_message = "Load balancers have names of up to 32 characters: ${aws_lb.clients.name}."
  }
}

run "two_long_names_differ" {
  variables {
    cluster = "a-cluster-with-a-name-of-32-chas"
  }
  assert {
    condition     = aws_lb.clients.name != "spillway-a-cluster-with-${substr(sha1("spillway-a-cluster-with-a-name-of-32-char"), 0, 8)}" && startswith(aws_lb.clients.name, "spillway-a-cluster-with-")
    error_message = "${aws_lb.clients.name} has to be of this cluster alone."
  }
}

run "apply_waits_until_the_node_has_started" {
  assert {
    condition     = one(aws_autoscaling_group.node.initial_lifecycle_hook).lifecycle_transition == "autoscaling:EC2_INSTANCE_LAUNCHING" && aws_autoscaling_group.node.wait_for_capacity_timeout == "15m"
    error_message = "The machine is in service when it says so, and apply fails if it does not."
  }
  assert {
    condition     = one([for statement in data.aws_iam_policy_document.node.statement : statement.resources if statement.sid == "Started"]) == toset(["arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:*:autoScalingGroupName/spillway-test-us-east-1"])
    error_message = "The machine may say so."
  }
}
