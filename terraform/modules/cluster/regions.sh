#!/usr/bin/env bash
# Writes regions.tf beside this script for the regions that it is given: Terraform can't make providers in a loop.
# Prints the providers that the root module needs then.
#   regions.sh us-east-1 eu-central-1 sa-east-1
set -euo pipefail
cd "$(dirname "$0")"

(($# > 0)) || { echo "say which regions of AWS, e.g. us-east-1 eu-central-1" >&2; exit 64; }
for region in "$@"; do
  [[ $region =~ ^[a-z]+(-[a-z]+)+-[0-9]+$ ]] || { echo "$region is no region of AWS" >&2; exit 64; }
done

# What modules/cluster takes of each of its regions, as one map.
collect() {
  local region
  echo "  $1 = merge("
  for region in "${regions[@]}"; do
    echo "    contains(keys(var.regions), \"$region\") ? { \"$region\" = module.${region}[0].$2 } : {},"
  done
  echo "  )"
}

module_of_region() {
  cat <<EOF

module "$1" {
  source    = "../region"
  count     = contains(keys(var.regions), "$1") ? 1 : 0
  providers = { aws = aws.$1 }

  cluster  = var.cluster
  region   = "$1"
  package  = var.package
  settings = local.settings["$1"]
  peers    = module.mesh.peers["$1"]
  rtts_ms  = module.mesh.rtts_ms["$1"]
  secrets  = local.secrets["$1"]

  auth                = var.auth
  client_cidrs        = var.client_cidrs
  route53_checks      = local.route53_checks
  backups             = var.backups
  deletion_protection = var.deletion_protection
  log_days            = var.log_days
  tags                = var.tags
}
EOF
}

regions_tf() {
  cat <<EOF
# Written by regions.sh, which has a provider and a block for each region that can be used.

terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
      configuration_aliases = [
$(printf '        aws.%s,\n' "${regions[@]}")
      ]
    }
  }
}

# Route 53 and Global Accelerator are of no region: any provider will do.
module "global" {
  source = "../global"

  providers = { aws = aws.${regions[0]} }

  cluster                   = var.cluster
  balancers                 = local.balancers
  enable_global_accelerator = var.enable_global_accelerator
  zone_id                   = var.zone_id
  name                      = var.name
  countries                 = var.countries
  continents                = var.continents
  tags                      = var.tags
}
EOF
  for region in "${regions[@]}"; do module_of_region "$region"; done
  cat <<EOF

# Output by output: a whole module as one value would depend on itself.
locals {
  supported = [
$(printf '    "%s",\n' "${regions[@]}")
  ]

$(collect addresses address)

$(collect balancers balancer)

$(collect configs config)

$(collect replace replace)

$(collect sessions session)
}
EOF
}

providers() {
  cat <<EOF
# For your root module. The call of this module takes
#   providers = {
$(for region in "${regions[@]}"; do echo "#     aws.$region = aws.$region"; done)
#   }

terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
    }
  }
}
$(for region in "${regions[@]}"; do printf '\nprovider "aws" {\n  alias  = "%s"\n  region = "%s"\n}\n' "$region" "$region"; done)
EOF
}

regions=("$@")
regions_tf >regions.tf
providers
