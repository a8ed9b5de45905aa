output "url" {
  description = "Where clients go."
  value       = module.spillway.url
}

output "regions" {
  description = "Each region's own address."
  value       = module.spillway.regions
}

output "replace" {
  description = "Commands that replace a machine, one region at a time."
  value       = module.spillway.replace
}

output "sessions" {
  description = "Commands that bring a region's admin listener to this machine."
  value       = module.spillway.sessions
}
