resource "aws_globalaccelerator_accelerator" "all" {
  # checkov:skip=CKV_AWS_75:Flow logs need a bucket of the account's and cost by the byte; nodes count and log their clients.
  count           = local.accelerated ? 1 : 0
  name            = "spillway-${var.cluster}"
  ip_address_type = "IPV4"
  enabled         = true
  tags            = var.tags
}

resource "aws_globalaccelerator_listener" "clients" {
  count           = local.accelerated ? 1 : 0
  accelerator_arn = aws_globalaccelerator_accelerator.all[0].arn
  protocol        = "TCP"
  client_affinity = "NONE"

  port_range {
    from_port = local.port
    to_port   = local.port
  }
}

# Healthy is what the region's load balancer says, which asks /steering.
resource "aws_globalaccelerator_endpoint_group" "region" {
  for_each = local.accelerated ? var.balancers : {}

  listener_arn            = aws_globalaccelerator_listener.clients[0].arn
  endpoint_group_region   = each.key
  traffic_dial_percentage = 100

  endpoint_configuration {
    endpoint_id = each.value.arn
    # AWS does not keep clients' addresses on the way to a load balancer with TLS.
    client_ip_preservation_enabled = !each.value.tls
    weight                         = 100
  }
}
