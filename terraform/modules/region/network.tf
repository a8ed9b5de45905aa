# The VPC, unless one is given, and who may send what to whom.

locals {
  makes_vpc = var.settings.cidr != null
  vpc_id    = local.makes_vpc ? aws_vpc.made[0].id : var.settings.vpc_id
  # Another zone is another subnet, beside the one before it until nothing uses that any more.
  made_in   = coalesce(var.settings.zone, "any")
  subnet_id = local.makes_vpc ? aws_subnet.public[local.made_in].id : var.settings.subnet_id
  zone      = local.makes_vpc ? aws_subnet.public[local.made_in].availability_zone : data.aws_subnet.given[0].availability_zone

  vpc_cidrs     = local.makes_vpc ? [var.settings.cidr] : data.aws_vpc.given[0].cidr_block_associations[*].cidr_block
  replica_cidrs = coalesce(var.settings.replica_cidrs, local.vpc_cidrs)
  # Security groups let the VPC's own resolver pass; all other servers of DNS need a rule.
  dns_servers = concat(
    [for block in concat(local.vpc_cidrs, local.replica_cidrs, var.settings.dns_cidrs) : { cidr = block, port = 53 }],
    [
      for found in var.settings.discoveries : { cidr = "${split(":", found.resolver)[0]}/32", port = tonumber(split(":", found.resolver)[1]) }
      if found.resolver != null
    ],
  )
  dns_rules = {
    for rule in setproduct(distinct(local.dns_servers), ["udp", "tcp"]) :
    "${rule[0].cidr} ${rule[0].port} ${rule[1]}" => merge(rule[0], { protocol = rule[1] })
  }

  # Addresses of clients leave Route 53 out: without its health checks a name leads to all regions, healthy or not.
  lets_checks_in = var.route53_checks && !contains(var.client_cidrs, "0.0.0.0/0")

  quic_cidrs = merge(
    { for name, peer in var.peers : name => "${split(":", peer.address)[0]}/32" },
    { for cidr in var.settings.peer_cidrs : cidr => cidr },
  )
}

data "aws_availability_zones" "available" {
  # checkov:skip=CKV_AWS_394:Only the first of them is used, and the subnet stays in the zone that it was made in.
  count = local.makes_vpc && var.settings.zone == null ? 1 : 0
  state = "available"

  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

# Not every zone has every machine.
data "aws_ec2_instance_type_offerings" "zones" {
  count         = length(data.aws_availability_zones.available)
  location_type = "availability-zone"

  filter {
    name   = "instance-type"
    values = [var.settings.instance_types[0]]
  }
}

data "aws_ec2_managed_prefix_list" "route53" {
  count = local.lets_checks_in ? 1 : 0
  name  = "com.amazonaws.${var.region}.route53-healthchecks"
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

# One zone: the disk is in it, and what a second one would bring, other regions do. The subnet of a zone that was chosen has
# a block of its own, after the zone's letter.
resource "aws_subnet" "public" {
  for_each          = local.makes_vpc ? toset([local.made_in]) : []
  vpc_id            = aws_vpc.made[0].id
  cidr_block        = cidrsubnet(var.settings.cidr, 4, each.key == "any" ? 0 : 1 + index(split("", "abcdefghijklmno"), substr(each.key, -1, 1)))
  availability_zone = each.key == "any" ? local.first_zone : each.key
  tags              = merge(local.tags, { Name = "${local.name}-public" })

  lifecycle {
    create_before_destroy = true
    # A zone that opens later and comes first in the alphabet moves nothing.
    ignore_changes = [availability_zone]

    precondition {
      condition     = each.key != "any" || local.first_zone != null
      error_message = "No zone of ${var.region} has ${var.settings.instance_types[0]}, the first of instance_types."
    }
  }
}

moved {
  from = aws_subnet.public[0]
  to   = aws_subnet.public["any"]
}

locals {
  first_zone = try(sort(setintersection(data.aws_availability_zones.available[0].names, data.aws_ec2_instance_type_offerings.zones[0].locations))[0], null)
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
  subnet_id      = local.subnet_id
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

resource "aws_vpc_security_group_ingress_rule" "route53" {
  count = length(data.aws_ec2_managed_prefix_list.route53)

  security_group_id = aws_security_group.balancer.id
  description       = "Health checks of Route 53"
  prefix_list_id    = data.aws_ec2_managed_prefix_list.route53[0].id
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

resource "aws_vpc_security_group_ingress_rule" "monitoring" {
  for_each = toset(var.settings.monitoring_cidrs)

  security_group_id = aws_security_group.node.id
  description       = "Monitoring"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = local.admin_port
  to_port           = local.admin_port
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "dns" {
  for_each = local.dns_rules

  security_group_id = aws_security_group.node.id
  description       = "DNS"
  cidr_ipv4         = each.value.cidr
  ip_protocol       = each.value.protocol
  from_port         = each.value.port
  to_port           = each.value.port
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
