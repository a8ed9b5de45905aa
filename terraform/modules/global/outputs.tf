output "url" {
  description = "Where clients go; null without a name and an accelerator."
  value = (
    local.named ? "${local.scheme}://${var.name}${local.suffix}" :
    local.accelerated ? "${local.scheme}://${aws_globalaccelerator_accelerator.all[0].dns_name}${local.suffix}" :
    null
  )
}

output "anycast_addresses" {
  description = "Addresses of the accelerator."
  value       = local.accelerated ? flatten(aws_globalaccelerator_accelerator.all[0].ip_sets[*].ip_addresses) : []
}
