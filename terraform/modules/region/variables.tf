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
  description = "What to install: the URL (s3:// or https://) of the .deb or .tar.gz that `cargo xtask dist` makes, and its SHA-256; `kms_key_arn`, if the bucket has a key of its own."
  type        = object({ url = string, sha256 = string, kms_key_arn = optional(string) })

  validation {
    condition     = !endswith(var.package.url, ".deb") || var.settings.image != null
    error_message = "Amazon Linux has no dpkg: give package.url of the .tar.gz, or name an `image` that has dpkg."
  }

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
    cidr             = optional(string)
    vpc_id           = optional(string)
    subnet_id        = optional(string)
    zone             = optional(string)           # of a network to make, e.g. us-east-1b; if left out, the first that offers the machine
    replica_cidrs    = optional(list(string))     # where model servers are; the VPC's own blocks, if left out
    dns_cidrs        = optional(list(string), []) # DNS servers outside the VPC's own blocks and replica_cidrs
    peer_cidrs       = optional(list(string), []) # who may send packets of the cluster besides the nodes' addresses
    monitoring_cidrs = optional(list(string), []) # who may reach the admin listener (TCP 9900, TLS, a token); loopback alone, if empty
    trusted_proxies  = optional(list(string), []) # whose X-Forwarded-For is believed

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
      name     = string
      dns      = optional(string)
      srv      = optional(string)
      resolver = optional(string)
      url      = optional(string, "http://")
      models   = optional(list(string))
      kind     = optional(string)
    })), [])
    config = optional(string, "") # more of the node's config, as TOML; what it says in [node], [admin], [auth], [cluster] counts

    # Membership and keys.
    join            = optional(bool, false) # the node joins a cluster that runs, by a token
    secrets_version = optional(number, 1)   # count it up after any secret of this region was changed

    # Machine and load balancer.
    country         = optional(string)                                                             # for rules about where requests may be served, e.g. DE
    certificate_arn = optional(string)                                                             # ACM, in this region: TLS on port 443 instead of TCP on port 8080
    instance_types  = optional(list(string), ["c7i.large", "c7a.large", "m7i.large", "c6i.large"]) # Nitro, of the package's architecture; the first that is to be had
    image           = optional(string)                                                             # AMI; if left out, the newest Amazon Linux 2023 when the package was chosen
    volume_gib      = optional(number, 20)                                                         # may grow, not shrink
    alarm_actions   = optional(list(string), [])                                                   # topics of SNS in this region that alarms go to
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
    condition     = var.settings.zone == null || var.settings.cidr != null && startswith(coalesce(var.settings.zone, "-"), var.region)
    error_message = "zone is a zone of ${var.region}, for a network that is made (cidr); a subnet_id is in a zone already."
  }

  validation {
    condition = alltrue([
      for block in concat(coalesce(var.settings.replica_cidrs, []), var.settings.dns_cidrs, var.settings.peer_cidrs, var.settings.monitoring_cidrs) :
      can(cidrhost(block, 0)) && !strcontains(block, ":")
    ])
    error_message = "replica_cidrs, dns_cidrs, peer_cidrs and monitoring_cidrs of ${var.region} are blocks of IPv4 addresses, e.g. 10.1.0.0/16."
  }

  validation {
    condition     = alltrue([for found in var.settings.discoveries : found.resolver == null || can(regex("^[0-9.]+:[0-9]+$", found.resolver))])
    error_message = "resolver of a discovery of ${var.region} is an IPv4 address and a port, e.g. 10.1.0.53:53."
  }

  validation {
    condition     = length(var.settings.instance_types) > 0 && length(var.settings.instance_types) <= 40
    error_message = "instance_types of ${var.region} has 1 to 40 types."
  }

  validation {
    condition     = var.settings.image == null || can(regex("^ami-[0-9a-f]+$", var.settings.image))
    error_message = "image of ${var.region} is an AMI's id, e.g. ami-0123456789abcdef0, so that each machine gets the same."
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
  description = "Certificate and key of the node (`spillway certs node`), the cluster's CA certificate and prefix key (`spillway certs init`), the join token where `settings.join` is true, and lines `name role token` of operators where `settings.monitoring_cidrs` has any (`admin_tokens`). Neither the plan nor the state holds them."
  type = object({
    ca           = string
    certificate  = string
    key          = string
    prefix_key   = string
    join_token   = optional(string)
    admin_tokens = optional(string)
  })
  ephemeral = true
  sensitive = true

  validation {
    condition     = !var.settings.join || try(trimspace(var.secrets.join_token), "") != ""
    error_message = "A node that joins needs secrets.join_token: what `spillway join-token create` printed."
  }

  validation {
    condition     = length(var.settings.monitoring_cidrs) == 0 || try(trimspace(var.secrets.admin_tokens), "") != ""
    error_message = "monitoring_cidrs needs secrets.admin_tokens: lines `name role token`, e.g. `prometheus read TOKEN`."
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

  validation {
    condition     = alltrue([for block in var.client_cidrs : can(cidrhost(block, 0)) && !strcontains(block, ":")])
    error_message = "client_cidrs are blocks of IPv4 addresses, e.g. 198.51.100.0/24."
  }
}

variable "route53_checks" {
  description = "Whether the health checks of Route 53 (modules/global with a name) may reach the load balancer beside client_cidrs."
  type        = bool
  default     = true
}

variable "backups" {
  description = "Where the node's backups go: a bucket, the public key (age1...) that they are encrypted for, when (systemd's OnCalendar, at least once a day), and the bucket's KMS key, if it has its own. None: no backups."
  type = object({
    bucket      = string
    encrypt_to  = string
    prefix      = optional(string, "spillway")
    on_calendar = optional(string, "hourly")
    kms_key_arn = optional(string)
  })
  default = null

  validation {
    condition     = var.backups == null || can(regex("^age1[0-9a-z]+$", var.backups.encrypt_to))
    error_message = "backups.encrypt_to is a public key that `age-keygen` or `rage-keygen` printed: age1..."
  }
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
