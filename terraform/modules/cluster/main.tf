# A cluster over several AWS regions: a node in each, who knows whom, and one name for all.
#
# Terraform can't make providers in a loop. So each region that can be used has a provider here and a block in
# regions.tf; which of them are used is one line each in `regions`.

terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 5.100"
      configuration_aliases = [
        aws.us-east-1,
        aws.us-west-2,
        aws.eu-central-1,
        aws.eu-west-1,
        aws.ap-southeast-1,
        aws.ap-northeast-1,
      ]
    }
  }
}

locals {
  supported = ["us-east-1", "us-west-2", "eu-central-1", "eu-west-1", "ap-southeast-1", "ap-northeast-1"]

  countries = {
    us-east-1      = "US"
    us-west-2      = "US"
    eu-central-1   = "DE"
    eu-west-1      = "IE"
    ap-southeast-1 = "SG"
    ap-northeast-1 = "JP"
  }

  settings = {
    for region, settings in var.regions : region =>
    merge(settings, { country = settings.country == null ? lookup(local.countries, region, null) : settings.country })
  }

  # Each node gets its own key and no other's.
  secrets = {
    for region in keys(var.regions) : region => {
      ca          = var.secrets.ca
      prefix_key  = var.secrets.prefix_key
      certificate = var.secrets.nodes[region].certificate
      key         = var.secrets.nodes[region].key
      join_token  = var.secrets.nodes[region].join_token
    }
  }
}

module "mesh" {
  source = "../mesh"

  rtts_ms = var.rtts_ms
  nodes = {
    for region, settings in var.regions : region => {
      region  = region
      address = local.addresses[region]
      join    = settings.join
    }
  }
}

module "global" {
  source = "../global"

  providers = { aws = aws.us-east-1 }

  cluster                   = var.cluster
  balancers                 = local.balancers
  enable_global_accelerator = var.enable_global_accelerator
  zone_id                   = var.zone_id
  name                      = var.name
  countries                 = var.countries
  continents                = var.continents
  tags                      = var.tags
}
