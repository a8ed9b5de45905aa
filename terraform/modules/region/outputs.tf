output "address" {
  description = "Where other nodes reach this one (UDP)."
  value       = "${aws_eip.node.public_ip}:${local.quic_port}"
}

output "balancer" {
  description = "Where clients reach this region: what modules/global takes."
  value = {
    arn      = aws_lb.clients.arn
    address  = aws_eip.balancer.public_ip
    dns_name = aws_lb.clients.dns_name
    port     = local.listener_port
    tls      = var.settings.certificate_arn != null
  }
}

output "config" {
  description = "Config of the node."
  value       = local.config
}

output "replace" {
  description = "Command that replaces the machine by a new one with the same name, address and disk: after a change of package, image or instance type. One region at a time."
  value       = "aws autoscaling start-instance-refresh --region ${var.region} --auto-scaling-group-name ${aws_autoscaling_group.node.name} --preferences MinHealthyPercentage=0"
}

output "session" {
  description = "Command that brings the node's admin listener to port 9900 of this machine."
  value       = "aws ssm start-session --region ${var.region} --document-name AWS-StartPortForwardingSession --parameters portNumber=9900,localPortNumber=9900 --target $(aws autoscaling describe-auto-scaling-groups --region ${var.region} --auto-scaling-group-names ${aws_autoscaling_group.node.name} --query 'AutoScalingGroups[0].Instances[0].InstanceId' --output text)"
}
