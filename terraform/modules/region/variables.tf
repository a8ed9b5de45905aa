variable "cluster" {
  description = "Name of the cluster, as in its certificates."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", var.cluster))
    error_message = "The cluster's name has up to 32 of a-z, 0-9 and hyphens, no hyphen at either end."
  }
}

variable "region" {
  description = "Name of the AWS region that the provider of this module is for. The region and the node of Spillway have this name, too."
  type        = string
}

variable "package" {
  description = "What to install: the URL (s3:// or https://) of the .deb or .tar.gz that `cargo xtask dist` makes, and its SHA-256."
  type        = object({ url = string, sha256 = string })

  validation {
    condition     = can(regex("^(s3|https)://[^ \"]+\\.(deb|tar\\.gz)$", var.package.url))
    error_message = "package.url begins with s3:// or https:// and ends with .deb or .tar.gz."
  }

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.package.sha256))
    error_message = "package.sha256 is 64 hexadecimal digits, as `sha256sum` prints them."
  }
}

variable "settings" {
  description = "What is this region's own: network, model servers, membership, machine. The type says what each is."
  type = object({
    # Network: a VPC to make (cidr), or one that is there with a public subnet.
    cidr          = optional(string)
    vpc_id        = optional(string)
    subnet_id     = optional(string)
    replica_cidrs = optional(list(string))     # where model servers are; the VPC's own block, if left out
    peer_cidrs    = optional(list(string), []) # who may send packets of the cluster besides the nodes' addresses

    # Model servers, as in [[replica]] and [[discovery]]; or none, for an edge node.
    edge = optional(bool, false)
    replicas = optional(list(object({
      name            = string
      url             = string
      models          = optional(list(string))
      kind            = optional(string)
      pool            = optional(string)
      weight          = optional(number)
      connections_max = optional(number)
    })), [])
    discoveries = optional(list(object({
      name   = string
      dns    = optional(string)
      srv    = optional(string)
      url    = optional(string, "http://")
      models = optional(list(string))
      kind   = optional(string)
    })), [])
    config = optional(string, "") # more of the node's config, as TOML

    # Membership and keys.
    join            = optional(bool, false) # the node joins a cluster that runs, by a token
    secrets_version = optional(number, 1)   # count it up after any secret of this region was changed

    # Machine and load balancer.
    country         = optional(string)              # for rules about where requests may be served, e.g. DE
    certificate_arn = optional(string)              # ACM, in this region: TLS on port 443 instead of TCP on port 8080
    instance_type   = optional(string, "c7i.large") # a Nitro instance of the package's architecture
    image           = optional(string, "resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64")
    volume_gib      = optional(number, 20)
  })

  validation {
    condition     = (var.settings.cidr != null) != (var.settings.vpc_id != null && var.settings.subnet_id != null)
    error_message = "${var.region} has either cidr, or vpc_id and subnet_id."
  }

  validation {
    condition     = var.settings.cidr == null || can(cidrsubnet(var.settings.cidr, 4, 0))
    error_message = "cidr of ${var.region} is a block of addresses, e.g. 10.1.0.0/16."
  }

  validation {
    condition     = var.settings.edge != (length(var.settings.replicas) + length(var.settings.discoveries) > 0)
    error_message = "${var.region} has replicas or discoveries, or says edge = true."
  }
}

variable "peers" {
  description = "Other nodes: name => region, `address` (host:port) and whether this node's config names it (`in_config`). Output `peers` of modules/mesh."
  type        = map(object({ region = string, address = string, in_config = bool }))
}

variable "rtts_ms" {
  description = "Round trips to other regions in milliseconds, until they are measured. Output `rtts_ms` of modules/mesh."
  type        = map(number)
  default     = {}
}

variable "secrets" {
  description = "Certificate and key of the node (`spillway certs node`), the cluster's CA certificate and prefix key (`spillway certs init`), and the join token where `settings.join` is true. Neither the plan nor the state holds them."
  type = object({
    ca          = string
    certificate = string
    key         = string
    prefix_key  = string
    join_token  = optional(string)
  })
  ephemeral = true
  sensitive = true

  validation {
    condition     = !var.settings.join || try(trimspace(var.secrets.join_token), "") != ""
    error_message = "A node that joins needs secrets.join_token: what `spillway join-token create` printed."
  }
}

variable "auth" {
  description = "Who may connect: `keys` or `none` ([auth] mode)."
  type        = string
  default     = "keys"
}

variable "client_cidrs" {
  description = "Who may reach the load balancer."
  type        = list(string)
  default     = ["0.0.0.0/0"]
}

variable "deletion_protection" {
  description = "Whether the load balancer refuses to be deleted."
  type        = bool
  default     = false
}

variable "log_days" {
  description = "How long CloudWatch keeps the node's log."
  type        = number
  default     = 365
}

variable "tags" {
  description = "Tags of everything, beside spillway:cluster and spillway:region."
  type        = map(string)
  default     = {}
}
