# Who knows whom: pure computation, no resources.

terraform {
  required_version = ">= 1.11"
}

variable "nodes" {
  description = "Nodes of the cluster: name => region, `address` (host:port, UDP) and whether it joined later (`join`)."
  type        = map(object({ region = string, address = string, join = optional(bool, false) }))

  validation {
    condition     = length(var.nodes) == 0 || anytrue([for node in values(var.nodes) : !node.join])
    error_message = "Somebody has to begin: at least one node without join."
  }
}

variable "rtts_ms" {
  description = "Round trips in milliseconds that are not in this module's table, or better known: \"a b\" => ms, names of regions in alphabetical order."
  type        = map(number)
  default     = {}
}

locals {
  # Typical ones between AWS regions. Nodes measure their own; timers of the first minutes come from these.
  typical_ms = {
    "ap-northeast-1 ap-southeast-1" = 70
    "ap-northeast-1 eu-central-1"   = 225
    "ap-northeast-1 eu-west-1"      = 200
    "ap-northeast-1 us-east-1"      = 150
    "ap-northeast-1 us-west-2"      = 100
    "ap-southeast-1 eu-central-1"   = 160
    "ap-southeast-1 eu-west-1"      = 175
    "ap-southeast-1 us-east-1"      = 220
    "ap-southeast-1 us-west-2"      = 165
    "eu-central-1 eu-west-1"        = 25
    "eu-central-1 us-east-1"        = 90
    "eu-central-1 us-west-2"        = 145
    "eu-west-1 us-east-1"           = 70
    "eu-west-1 us-west-2"           = 125
    "us-east-1 us-west-2"           = 65
  }
  known_ms = merge(local.typical_ms, var.rtts_ms)
}

output "peers" {
  description = "For each node all others. `in_config`: its config names them. Nodes that begin a cluster name each other and nobody else, since different lists would be different clusters; nodes that join name all."
  value = {
    for name, node in var.nodes : name => {
      for other, its in var.nodes : other => {
        region    = its.region
        address   = its.address
        in_config = node.join || !its.join
      } if other != name
    }
  }
}

output "rtts_ms" {
  description = "For each node the round trips to the regions of all others, as far as they are known."
  value = {
    for name, node in var.nodes : name => {
      for region in distinct([for its in values(var.nodes) : its.region if its.region != node.region]) :
      region => local.known_ms[join(" ", sort([node.region, region]))]
      if contains(keys(local.known_ms), join(" ", sort([node.region, region])))
    }
  }
}
