# One name for all regions: by Global Accelerator, by Route 53, or the accelerator under a name of Route 53.

terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}

locals {
  # With an accelerator the name is the accelerator's, which finds the nearest healthy region for each connection.
  accelerated = var.enable_global_accelerator
  named       = var.zone_id != null
  by_dns      = local.named && !local.accelerated
  by_place    = local.by_dns && length(var.countries) + length(var.continents) > 0
  # One name can't have records by latency and by place: whoever is in none of the places goes by a second name.
  nearest = local.by_place ? "nearest.${var.name}" : var.name
  port    = try(values(var.balancers)[0].port, 8080)
  tls     = try(values(var.balancers)[0].tls, false)
  scheme  = local.tls ? "https" : "http"
  suffix  = local.tls ? "" : ":${local.port}"
}
