# Random values would not pass the provider's checks of formats.
mock_data "aws_caller_identity" {
  defaults = { account_id = "123456789012" }
}
mock_data "aws_availability_zones" {
  defaults = { names = ["zone-c", "zone-b", "zone-a"] }
}
mock_data "aws_ec2_instance_type_offerings" {
  defaults = { locations = ["zone-c", "zone-b"] }
}
mock_data "aws_ssm_parameter" {
  defaults = { value = "ami-0000000000000000a" }
}
mock_data "aws_ec2_managed_prefix_list" {
  defaults = { id = "pl-0123456789abcdef0" }
}
mock_data "aws_vpc" {
  defaults = { cidr_block_associations = [{ association_id = "a", cidr_block = "10.9.0.0/16", state = "associated" }, { association_id = "b", cidr_block = "100.64.0.0/16", state = "associated" }] }
}
mock_data "aws_iam_policy_document" {
  defaults = { json = "{}" }
}
mock_resource "aws_eip" {
  defaults = { allocation_id = "eipalloc-0123456789abcdef0", public_ip = "203.0.113.7" }
}
mock_resource "aws_ebs_volume" {
  defaults = { id = "vol-0123456789abcdef0", arn = "arn:aws:ec2:us-east-1:123456789012:volume/vol-0123456789abcdef0" }
}
mock_resource "aws_kms_key" {
  defaults = { arn = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000" }
}
mock_resource "aws_cloudwatch_log_group" {
  defaults = { arn = "arn:aws:logs:us-east-1:123456789012:log-group:/spillway/test/us-east-1" }
}
mock_resource "aws_launch_template" {
  defaults = { id = "lt-0123456789abcdef0" }
}
mock_resource "aws_iam_instance_profile" {
  defaults = { arn = "arn:aws:iam::123456789012:instance-profile/node" }
}
mock_resource "aws_lb" {
  defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:loadbalancer/net/spillway/0123456789abcdef", dns_name = "spillway.elb.example" }
}
mock_resource "aws_lb_target_group" {
  defaults = { arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/spillway/0123456789abcdef" }
}
mock_resource "aws_globalaccelerator_accelerator" {
  defaults = { id = "arn:aws:globalaccelerator::123456789012:accelerator/00000000-0000-0000-0000-000000000000", arn = "arn:aws:globalaccelerator::123456789012:accelerator/00000000-0000-0000-0000-000000000000", dns_name = "a0.awsglobalaccelerator.com", hosted_zone_id = "Z2BJ6XQ5FK7U4H" }
}
mock_resource "aws_globalaccelerator_listener" {
  defaults = { id = "arn:aws:globalaccelerator::123456789012:accelerator/00000000-0000-0000-0000-000000000000/listener/0123abcd", arn = "arn:aws:globalaccelerator::123456789012:accelerator/00000000-0000-0000-0000-000000000000/listener/0123abcd" }
}
mock_resource "aws_route53_health_check" {
  defaults = { id = "00000000-0000-0000-0000-000000000000" }
}
