resource "aws_route53_health_check" "region" {
  for_each = local.by_dns ? var.balancers : {}

  type              = each.value.tls ? "HTTPS" : "HTTP"
  ip_address        = each.value.address
  fqdn              = var.name
  enable_sni        = each.value.tls
  port              = each.value.port
  resource_path     = "/steering"
  request_interval  = 10
  failure_threshold = 2
  tags              = merge(var.tags, { Name = "${var.name} ${each.key}" })
}

# Addresses, no aliases: a load balancer's own name is kept for 60 s by those who ask.
resource "aws_route53_record" "nearest" {
  # checkov:skip=CKV2_AWS_23:The address is a load balancer's in another region.
  for_each = local.by_dns ? var.balancers : {}

  zone_id         = var.zone_id
  name            = local.nearest
  type            = "A"
  ttl             = var.ttl_s
  records         = [each.value.address]
  set_identifier  = each.key
  health_check_id = aws_route53_health_check.region[each.key].id

  latency_routing_policy {
    region = each.key
  }
}

# A place's own region while that is healthy; then the continent's, then the nearest.
resource "aws_route53_record" "country" {
  # checkov:skip=CKV2_AWS_23:The address is a load balancer's in another region.
  for_each = local.by_place ? var.countries : {}

  zone_id         = var.zone_id
  name            = var.name
  type            = "A"
  ttl             = var.ttl_s
  records         = [var.balancers[each.value].address]
  set_identifier  = "country ${each.key}"
  health_check_id = aws_route53_health_check.region[each.value].id

  geolocation_routing_policy {
    country = each.key
  }
}

resource "aws_route53_record" "continent" {
  # checkov:skip=CKV2_AWS_23:The address is a load balancer's in another region.
  for_each = local.by_place ? var.continents : {}

  zone_id         = var.zone_id
  name            = var.name
  type            = "A"
  ttl             = var.ttl_s
  records         = [var.balancers[each.value].address]
  set_identifier  = "continent ${each.key}"
  health_check_id = aws_route53_health_check.region[each.value].id

  geolocation_routing_policy {
    continent = each.key
  }
}

resource "aws_route53_record" "anywhere" {
  # checkov:skip=CKV2_AWS_23:An alias of the names by latency.
  count = local.by_place ? 1 : 0

  zone_id        = var.zone_id
  name           = var.name
  type           = "A"
  set_identifier = "anywhere"

  alias {
    name                   = local.nearest
    zone_id                = var.zone_id
    evaluate_target_health = true
  }

  geolocation_routing_policy {
    country = "*"
  }

  depends_on = [aws_route53_record.nearest]
}

resource "aws_route53_record" "accelerated" {
  # checkov:skip=CKV2_AWS_23:An alias of the accelerator.
  count = local.named && local.accelerated ? 1 : 0

  zone_id = var.zone_id
  name    = var.name
  type    = "A"

  alias {
    name                   = aws_globalaccelerator_accelerator.all[0].dns_name
    zone_id                = aws_globalaccelerator_accelerator.all[0].hosted_zone_id
    evaluate_target_health = false
  }
}
