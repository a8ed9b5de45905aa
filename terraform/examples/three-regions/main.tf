# Three regions with model servers, each with a node; all of them begin the cluster together.

locals {
  regions = {
    us-east-1      = { cidr = "10.1.0.0/16", discoveries = [{ name = "gpus", dns = "gpus.us-east-1.internal:8000" }] }
    eu-central-1   = { cidr = "10.2.0.0/16", discoveries = [{ name = "gpus", dns = "gpus.eu-central-1.internal:8000" }] }
    ap-northeast-1 = { cidr = "10.3.0.0/16", discoveries = [{ name = "gpus", dns = "gpus.ap-northeast-1.internal:8000" }] }
  }
}

module "spillway" {
  source = "../../modules/cluster"

  providers = {
    aws.us-east-1      = aws.us-east-1
    aws.us-west-2      = aws.us-west-2
    aws.eu-central-1   = aws.eu-central-1
    aws.eu-west-1      = aws.eu-west-1
    aws.ap-southeast-1 = aws.ap-southeast-1
    aws.ap-northeast-1 = aws.ap-northeast-1
  }

  cluster                   = "prod"
  package                   = var.package
  regions                   = local.regions
  name                      = var.name
  zone_id                   = var.zone_id
  enable_global_accelerator = var.enable_global_accelerator

  # Read at each run and never remembered. After a change count up the region's secrets_version.
  secrets = {
    ca           = file("${var.certs}/ca.pem")
    prefix_key   = file("${var.certs}/prefix.key")
    admin_tokens = try(file("${var.certs}/admin.tokens"), null)
    nodes = {
      for region, settings in local.regions : region => {
        certificate = file("${var.certs}/${region}.${region}.pem")
        key         = file("${var.certs}/${region}.${region}-key.pem")
        join_token  = try(settings.join, false) ? file("${var.certs}/${region}.token") : null
      }
    }
  }
}
