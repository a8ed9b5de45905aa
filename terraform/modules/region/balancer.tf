# A network load balancer with a fixed address. It passes connections on and keeps clients' addresses.

resource "aws_eip" "balancer" {
  # checkov:skip=CKV2_AWS_19:It belongs to the load balancer.
  domain = "vpc"
  tags   = merge(local.tags, { Name = "${local.name}-balancer" })
}

resource "aws_lb" "clients" {
  # checkov:skip=CKV_AWS_150:A variable, so that `terraform destroy` works without a change by hand.
  # checkov:skip=CKV_AWS_91:It logs TLS listeners alone, and the node counts and logs its clients.
  # checkov:skip=CKV2_AWS_28:A web application firewall can't be put before a network load balancer.
  name                             = local.short_name
  load_balancer_type               = "network"
  internal                         = false
  security_groups                  = [aws_security_group.balancer.id]
  enable_cross_zone_load_balancing = true
  enable_deletion_protection       = var.deletion_protection
  tags                             = local.tags

  subnet_mapping {
    subnet_id     = local.subnet_id
    allocation_id = aws_eip.balancer.allocation_id
  }

  lifecycle {
    # Addresses of a network load balancer can't be changed, and not every API tells them. Another VPC or subnet makes another one.
    ignore_changes       = [subnet_mapping]
    replace_triggered_by = [aws_security_group.balancer.id, terraform_data.subnet]
  }
}

# Stands for the subnet, which the load balancer's own changes leave out.
resource "terraform_data" "subnet" {
  input = local.subnet_id
}

resource "aws_lb_target_group" "clients" {
  name                 = local.short_name
  port                 = local.client_port
  protocol             = "TCP"
  vpc_id               = local.vpc_id
  preserve_client_ip   = true
  deregistration_delay = 60
  tags                 = local.tags

  health_check {
    protocol            = "HTTP"
    path                = local.health_path
    port                = "traffic-port"
    matcher             = "200"
    interval            = 10
    timeout             = 5
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "clients" {
  # checkov:skip=CKV_AWS_2:TLS where a certificate is given.
  # checkov:skip=CKV_AWS_103:A security policy of TLS 1.2 and later where a certificate is given.
  load_balancer_arn = aws_lb.clients.arn
  port              = local.listener_port
  protocol          = var.settings.certificate_arn == null ? "TCP" : "TLS"
  certificate_arn   = var.settings.certificate_arn
  ssl_policy        = var.settings.certificate_arn == null ? null : "ELBSecurityPolicy-TLS13-1-2-2021-06"
  alpn_policy       = var.settings.certificate_arn == null ? null : "HTTP2Preferred"
  tags              = local.tags
  # An answer may take an hour (timeouts.total_ms). With TLS it is 350 s, which nobody can change; the node's keep-alive
  # packets (one a minute) hold connections there, as they do at an accelerator (340 s).
  tcp_idle_timeout_seconds = var.settings.certificate_arn == null ? 4000 : null

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.clients.arn
  }
}
