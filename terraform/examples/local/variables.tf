variable "binary" {
  description = "Path of the spillway command. Nothing is built here: run `cargo build --release` first, or name another."
  type        = string
  default     = "../../../target/release/spillway"
}

variable "folder" {
  description = "Folder for certificates, configs, logs and what nodes keep. `destroy` removes what was put there."
  type        = string
  default     = "state"
}

variable "regions" {
  description = <<-EOT
    Regions by name: one line each, with one node and its replicas. A region takes the ports from `port` on:
    clients (TCP), admin (TCP), other nodes (UDP), and its replicas (TCP) from `port + 10`.
  EOT
  type = map(object({
    port    = number
    country = string
  }))
  default = {
    "us-east-1"      = { port = 18100, country = "US" }
    "eu-central-1"   = { port = 18200, country = "DE" }
    "ap-northeast-1" = { port = 18300, country = "JP" }
  }

  validation {
    condition     = alltrue([for name in keys(var.regions) : can(regex("^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", name))])
    error_message = "Names of regions stand in certificates: up to 63 of a-z, 0-9 and hyphens, no hyphen at either end."
  }

  validation {
    condition     = alltrue([for region in values(var.regions) : region.port >= 1024 && region.port <= 65000])
    error_message = "A region's ports begin between 1024 and 65000."
  }

  validation {
    condition = length(var.regions) == length(distinct(
      [for region in values(var.regions) : floor(region.port / 100)]
    ))
    error_message = "Each region needs a hundred of ports for itself: 18100, 18200, ..."
  }

  validation {
    condition     = alltrue([for region in values(var.regions) : region.port % 100 <= 50])
    error_message = "A region's ports must not run into the next hundred: let `port` end on 00 to 50."
  }

  validation {
    condition     = length(var.regions) >= 1 && length(var.regions) <= 16
    error_message = "This example is for 1 to 16 regions."
  }
}

variable "replicas" {
  description = "Emulated model servers in each region."
  type        = number
  default     = 2

  validation {
    condition     = var.replicas >= 1 && var.replicas <= 16
    error_message = "A region has 1 to 16 emulated replicas."
  }
}

variable "model" {
  description = "Name of the model that the replicas serve."
  type        = string
  default     = "tiny"

  validation {
    condition     = can(regex("^[A-Za-z0-9._/-]{1,100}$", var.model))
    error_message = "A model's name has 1 to 100 letters, digits and . _ / -"
  }
}

variable "wait_seconds" {
  description = "Seconds that a process may take to be ready, or the cluster to be complete, before `apply` fails."
  type        = number
  default     = 60

  validation {
    condition     = var.wait_seconds >= 1 && var.wait_seconds <= 600
    error_message = "Wait for 1 to 600 seconds."
  }
}
