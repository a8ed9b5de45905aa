output "urls" {
  description = "Where clients reach each region."
  value       = { for name, region in var.regions : name => "http://127.0.0.1:${region.port}" }
  depends_on  = [terraform_data.cluster]
}

output "admin_urls" {
  description = "Health, metrics and the admin API of each node."
  value       = { for name, region in var.regions : name => "http://127.0.0.1:${region.port + 1}" }
  depends_on  = [terraform_data.cluster]
}

output "request" {
  description = "A request to try. `terraform output -raw request | sh` runs it."
  value = join(" ", [
    "curl --silent --show-error --fail-with-body",
    "http://127.0.0.1:${values(var.regions)[0].port}/v1/chat/completions",
    "--header 'content-type: application/json' --data '${jsonencode({ model = var.model, messages = [{ role = "user", content = "Hello" }] })}'",
  ])
  depends_on = [terraform_data.cluster]
}

output "status" {
  description = "Shows who leads and who votes. `terraform output -raw status | sh` runs it."
  value       = "'${local.binary}' status --admin http://127.0.0.1:${values(var.regions)[0].port + 1}"
  depends_on  = [terraform_data.cluster]
}

output "logs" {
  description = "What nodes and replicas say."
  value       = "${local.folder}/regions/*/*.log"
}
