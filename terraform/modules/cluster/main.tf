# A cluster over several AWS regions: a node in each, who knows whom, and one name for all.

locals {
  countries = {
    af-south-1     = "ZA"
    ap-east-1      = "HK"
    ap-northeast-1 = "JP"
    ap-northeast-2 = "KR"
    ap-northeast-3 = "JP"
    ap-south-1     = "IN"
    ap-south-2     = "IN"
    ap-southeast-1 = "SG"
    ap-southeast-2 = "AU"
    ap-southeast-3 = "ID"
    ap-southeast-4 = "AU"
    ap-southeast-5 = "MY"
    ca-central-1   = "CA"
    ca-west-1      = "CA"
    eu-central-1   = "DE"
    eu-central-2   = "CH"
    eu-north-1     = "SE"
    eu-south-1     = "IT"
    eu-south-2     = "ES"
    eu-west-1      = "IE"
    eu-west-2      = "GB"
    eu-west-3      = "FR"
    il-central-1   = "IL"
    me-central-1   = "AE"
    me-south-1     = "BH"
    mx-central-1   = "MX"
    sa-east-1      = "BR"
    us-east-1      = "US"
    us-east-2      = "US"
    us-west-1      = "US"
    us-west-2      = "US"
  }

  settings = {
    for region, settings in var.regions : region =>
    merge(settings, { country = settings.country == null ? lookup(local.countries, region, null) : settings.country })
  }

  # Each node gets its own key and no other's.
  secrets = {
    for region in keys(var.regions) : region => {
      ca           = var.secrets.ca
      prefix_key   = var.secrets.prefix_key
      admin_tokens = var.secrets.admin_tokens
      certificate  = var.secrets.nodes[region].certificate
      key          = var.secrets.nodes[region].key
      join_token   = var.secrets.nodes[region].join_token
    }
  }

  # With an accelerator nobody asks Route 53 where a region is.
  route53_checks = var.zone_id != null && !var.enable_global_accelerator
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
