# The VPC, unless one is given, and who may send what to whom.

locals {
  makes_vpc     = var.settings.cidr != null
  vpc_id        = local.makes_vpc ? aws_vpc.made[0].id : var.settings.vpc_id
  subnet_id     = local.makes_vpc ? aws_subnet.public[0].id : var.settings.subnet_id
  zone          = local.makes_vpc ? aws_subnet.public[0].availability_zone : data.aws_subnet.given[0].availability_zone
  replica_cidrs = coalesce(var.settings.replica_cidrs, local.makes_vpc ? [var.settings.cidr] : [data.aws_vpc.given[0].cidr_block])

  quic_cidrs = merge(
    { for name, peer in var.peers : name => "${split(":", peer.address)[0]}/32" },
    { for cidr in var.settings.peer_cidrs : cidr => cidr },
  )
}

data "aws_availability_zones" "available" {
  # checkov:skip=CKV_AWS_394:Only the first of them is used, and the subnet stays in the zone that it was made in.
  count = local.makes_vpc ? 1 : 0
  state = "available"

  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

data "aws_vpc" "given" {
  count = local.makes_vpc ? 0 : 1
  id    = var.settings.vpc_id
}

data "aws_subnet" "given" {
  count = local.makes_vpc ? 0 : 1
  id    = var.settings.subnet_id
}

resource "aws_vpc" "made" {
  # checkov:skip=CKV2_AWS_11:Flow logs cost by the byte and are an account's own decision; the node's metrics name refused peers.
  count                = local.makes_vpc ? 1 : 0
  cidr_block           = var.settings.cidr
  enable_dns_hostnames = true
  tags                 = merge(local.tags, { Name = local.name })
}

# Nothing uses the default group, and it lets nothing through.
resource "aws_default_security_group" "closed" {
  count  = local.makes_vpc ? 1 : 0
  vpc_id = aws_vpc.made[0].id
  tags   = local.tags
}

resource "aws_internet_gateway" "made" {
  count  = local.makes_vpc ? 1 : 0
  vpc_id = aws_vpc.made[0].id
  tags   = merge(local.tags, { Name = local.name })
}

# One zone: the disk is in it, and what a second one would bring, other regions do.
resource "aws_subnet" "public" {
  count             = local.makes_vpc ? 1 : 0
  vpc_id            = aws_vpc.made[0].id
  cidr_block        = cidrsubnet(var.settings.cidr, 4, 0)
  availability_zone = sort(data.aws_availability_zones.available[0].names)[0]
  tags              = merge(local.tags, { Name = "${local.name}-public" })

  lifecycle {
    # A zone that opens later and comes first in the alphabet moves nothing.
    ignore_changes = [availability_zone]
  }
}

resource "aws_route_table" "public" {
  count  = local.makes_vpc ? 1 : 0
  vpc_id = aws_vpc.made[0].id
  tags   = merge(local.tags, { Name = "${local.name}-public" })
}

resource "aws_route" "internet" {
  count                  = local.makes_vpc ? 1 : 0
  route_table_id         = aws_route_table.public[0].id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.made[0].id
}

resource "aws_route_table_association" "public" {
  count          = local.makes_vpc ? 1 : 0
  subnet_id      = aws_subnet.public[0].id
  route_table_id = aws_route_table.public[0].id
}

resource "aws_security_group" "balancer" {
  name        = "${local.name}-balancer"
  description = "Spillway: load balancer"
  vpc_id      = local.vpc_id
  tags        = merge(local.tags, { Name = "${local.name}-balancer" })
}

resource "aws_security_group" "node" {
  name        = "${local.name}-node"
  description = "Spillway: node"
  vpc_id      = local.vpc_id
  tags        = merge(local.tags, { Name = "${local.name}-node" })
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = toset(var.client_cidrs)

  security_group_id = aws_security_group.balancer.id
  description       = "Clients"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = local.listener_port
  to_port           = local.listener_port
  tags              = local.tags
}

# Rules between groups have no description: some APIs return none for them, which would be a change in each plan.
resource "aws_vpc_security_group_egress_rule" "balancer_to_node" {
  # checkov:skip=CKV_AWS_23:As said above.
  security_group_id            = aws_security_group.balancer.id
  referenced_security_group_id = aws_security_group.node.id
  ip_protocol                  = "tcp"
  from_port                    = local.client_port
  to_port                      = local.client_port
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "node_from_balancer" {
  # checkov:skip=CKV_AWS_23:As said above.
  security_group_id            = aws_security_group.node.id
  referenced_security_group_id = aws_security_group.balancer.id
  ip_protocol                  = "tcp"
  from_port                    = local.client_port
  to_port                      = local.client_port
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "quic" {
  for_each = local.quic_cidrs

  security_group_id = aws_security_group.node.id
  description       = "Node ${each.key}"
  cidr_ipv4         = each.value
  ip_protocol       = "udp"
  from_port         = local.quic_port
  to_port           = local.quic_port
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "quic" {
  for_each = local.quic_cidrs

  security_group_id = aws_security_group.node.id
  description       = "Node ${each.key}"
  cidr_ipv4         = each.value
  ip_protocol       = "udp"
  from_port         = local.quic_port
  to_port           = local.quic_port
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "replicas" {
  for_each = toset(local.replica_cidrs)

  security_group_id = aws_security_group.node.id
  description       = "Model servers"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 1
  to_port           = 65535
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "https" {
  security_group_id = aws_security_group.node.id
  description       = "AWS APIs and the package"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
  tags              = local.tags
}
