output "url" {
  description = "Where clients go; null without a name and an accelerator."
  value       = module.global.url
}

output "anycast_addresses" {
  description = "Addresses of the accelerator."
  value       = module.global.anycast_addresses
}

output "regions" {
  description = "Where each region's clients go and where its node is reached by others."
  value = {
    for region, balancer in local.balancers : region => {
      url  = "${balancer.tls ? "https" : "http"}://${balancer.address}:${balancer.port}"
      node = local.addresses[region]
    }
  }
}

output "configs" {
  description = "Config of each node."
  value       = local.configs
}

output "replace" {
  description = "For each region the command that replaces its machine. One region at a time: wait until `spillway status` shows its node in step again."
  value       = local.replace
}

output "sessions" {
  description = "For each region the command that brings its admin listener to port 9900 of this machine."
  value       = local.sessions
}
