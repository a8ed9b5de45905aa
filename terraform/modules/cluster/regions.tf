# Written by regions.sh, which has a provider and a block for each region that can be used.

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

# Route 53 and Global Accelerator are of no region: any provider will do.
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

module "us-east-1" {
  source    = "../region"
  count     = contains(keys(var.regions), "us-east-1") ? 1 : 0
  providers = { aws = aws.us-east-1 }

  cluster  = var.cluster
  region   = "us-east-1"
  package  = var.package
  settings = local.settings["us-east-1"]
  peers    = module.mesh.peers["us-east-1"]
  rtts_ms  = module.mesh.rtts_ms["us-east-1"]
  secrets  = local.secrets["us-east-1"]

  auth                = var.auth
  client_cidrs        = var.client_cidrs
  route53_checks      = local.route53_checks
  backups             = var.backups
  deletion_protection = var.deletion_protection
  log_days            = var.log_days
  tags                = var.tags
}

module "us-west-2" {
  source    = "../region"
  count     = contains(keys(var.regions), "us-west-2") ? 1 : 0
  providers = { aws = aws.us-west-2 }

  cluster  = var.cluster
  region   = "us-west-2"
  package  = var.package
  settings = local.settings["us-west-2"]
  peers    = module.mesh.peers["us-west-2"]
  rtts_ms  = module.mesh.rtts_ms["us-west-2"]
  secrets  = local.secrets["us-west-2"]

  auth                = var.auth
  client_cidrs        = var.client_cidrs
  route53_checks      = local.route53_checks
  backups             = var.backups
  deletion_protection = var.deletion_protection
  log_days            = var.log_days
  tags                = var.tags
}

module "eu-central-1" {
  source    = "../region"
  count     = contains(keys(var.regions), "eu-central-1") ? 1 : 0
  providers = { aws = aws.eu-central-1 }

  cluster  = var.cluster
  region   = "eu-central-1"
  package  = var.package
  settings = local.settings["eu-central-1"]
  peers    = module.mesh.peers["eu-central-1"]
  rtts_ms  = module.mesh.rtts_ms["eu-central-1"]
  secrets  = local.secrets["eu-central-1"]

  auth                = var.auth
  client_cidrs        = var.client_cidrs
  route53_checks      = local.route53_checks
  backups             = var.backups
  deletion_protection = var.deletion_protection
  log_days            = var.log_days
  tags                = var.tags
}

module "eu-west-1" {
  source    = "../region"
  count     = contains(keys(var.regions), "eu-west-1") ? 1 : 0
  providers = { aws = aws.eu-west-1 }

  cluster  = var.cluster
  region   = "eu-west-1"
  package  = var.package
  settings = local.settings["eu-west-1"]
  peers    = module.mesh.peers["eu-west-1"]
  rtts_ms  = module.mesh.rtts_ms["eu-west-1"]
  secrets  = local.secrets["eu-west-1"]

  auth                = var.auth
  client_cidrs        = var.client_cidrs
  route53_checks      = local.route53_checks
  backups             = var.backups
  deletion_protection = var.deletion_protection
  log_days            = var.log_days
  tags                = var.tags
}

module "ap-southeast-1" {
  source    = "../region"
  count     = contains(keys(var.regions), "ap-southeast-1") ? 1 : 0
  providers = { aws = aws.ap-southeast-1 }

  cluster  = var.cluster
  region   = "ap-southeast-1"
  package  = var.package
  settings = local.settings["ap-southeast-1"]
  peers    = module.mesh.peers["ap-southeast-1"]
  rtts_ms  = module.mesh.rtts_ms["ap-southeast-1"]
  secrets  = local.secrets["ap-southeast-1"]

  auth                = var.auth
  client_cidrs        = var.client_cidrs
  route53_checks      = local.route53_checks
  backups             = var.backups
  deletion_protection = var.deletion_protection
  log_days            = var.log_days
  tags                = var.tags
}

module "ap-northeast-1" {
  source    = "../region"
  count     = contains(keys(var.regions), "ap-northeast-1") ? 1 : 0
  providers = { aws = aws.ap-northeast-1 }

  cluster  = var.cluster
  region   = "ap-northeast-1"
  package  = var.package
  settings = local.settings["ap-northeast-1"]
  peers    = module.mesh.peers["ap-northeast-1"]
  rtts_ms  = module.mesh.rtts_ms["ap-northeast-1"]
  secrets  = local.secrets["ap-northeast-1"]

  auth                = var.auth
  client_cidrs        = var.client_cidrs
  route53_checks      = local.route53_checks
  backups             = var.backups
  deletion_protection = var.deletion_protection
  log_days            = var.log_days
  tags                = var.tags
}

# Output by output: a whole module as one value would depend on itself.
locals {
  supported = [
    "us-east-1",
    "us-west-2",
    "eu-central-1",
    "eu-west-1",
    "ap-southeast-1",
    "ap-northeast-1",
  ]

  addresses = merge(
    contains(keys(var.regions), "us-east-1") ? { "us-east-1" = module.us-east-1[0].address } : {},
    contains(keys(var.regions), "us-west-2") ? { "us-west-2" = module.us-west-2[0].address } : {},
    contains(keys(var.regions), "eu-central-1") ? { "eu-central-1" = module.eu-central-1[0].address } : {},
    contains(keys(var.regions), "eu-west-1") ? { "eu-west-1" = module.eu-west-1[0].address } : {},
    contains(keys(var.regions), "ap-southeast-1") ? { "ap-southeast-1" = module.ap-southeast-1[0].address } : {},
    contains(keys(var.regions), "ap-northeast-1") ? { "ap-northeast-1" = module.ap-northeast-1[0].address } : {},
  )

  balancers = merge(
    contains(keys(var.regions), "us-east-1") ? { "us-east-1" = module.us-east-1[0].balancer } : {},
    contains(keys(var.regions), "us-west-2") ? { "us-west-2" = module.us-west-2[0].balancer } : {},
    contains(keys(var.regions), "eu-central-1") ? { "eu-central-1" = module.eu-central-1[0].balancer } : {},
    contains(keys(var.regions), "eu-west-1") ? { "eu-west-1" = module.eu-west-1[0].balancer } : {},
    contains(keys(var.regions), "ap-southeast-1") ? { "ap-southeast-1" = module.ap-southeast-1[0].balancer } : {},
    contains(keys(var.regions), "ap-northeast-1") ? { "ap-northeast-1" = module.ap-northeast-1[0].balancer } : {},
  )

  configs = merge(
    contains(keys(var.regions), "us-east-1") ? { "us-east-1" = module.us-east-1[0].config } : {},
    contains(keys(var.regions), "us-west-2") ? { "us-west-2" = module.us-west-2[0].config } : {},
    contains(keys(var.regions), "eu-central-1") ? { "eu-central-1" = module.eu-central-1[0].config } : {},
    contains(keys(var.regions), "eu-west-1") ? { "eu-west-1" = module.eu-west-1[0].config } : {},
    contains(keys(var.regions), "ap-southeast-1") ? { "ap-southeast-1" = module.ap-southeast-1[0].config } : {},
    contains(keys(var.regions), "ap-northeast-1") ? { "ap-northeast-1" = module.ap-northeast-1[0].config } : {},
  )

  replace = merge(
    contains(keys(var.regions), "us-east-1") ? { "us-east-1" = module.us-east-1[0].replace } : {},
    contains(keys(var.regions), "us-west-2") ? { "us-west-2" = module.us-west-2[0].replace } : {},
    contains(keys(var.regions), "eu-central-1") ? { "eu-central-1" = module.eu-central-1[0].replace } : {},
    contains(keys(var.regions), "eu-west-1") ? { "eu-west-1" = module.eu-west-1[0].replace } : {},
    contains(keys(var.regions), "ap-southeast-1") ? { "ap-southeast-1" = module.ap-southeast-1[0].replace } : {},
    contains(keys(var.regions), "ap-northeast-1") ? { "ap-northeast-1" = module.ap-northeast-1[0].replace } : {},
  )

  sessions = merge(
    contains(keys(var.regions), "us-east-1") ? { "us-east-1" = module.us-east-1[0].session } : {},
    contains(keys(var.regions), "us-west-2") ? { "us-west-2" = module.us-west-2[0].session } : {},
    contains(keys(var.regions), "eu-central-1") ? { "eu-central-1" = module.eu-central-1[0].session } : {},
    contains(keys(var.regions), "eu-west-1") ? { "eu-west-1" = module.eu-west-1[0].session } : {},
    contains(keys(var.regions), "ap-southeast-1") ? { "ap-southeast-1" = module.ap-southeast-1[0].session } : {},
    contains(keys(var.regions), "ap-northeast-1") ? { "ap-northeast-1" = module.ap-northeast-1[0].session } : {},
  )
}
