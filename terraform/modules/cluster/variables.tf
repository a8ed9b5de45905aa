variable "cluster" {
  description = "Name of the cluster, as `spillway certs init --cluster` was told."
  type        = string
}

variable "package" {
  description = "What to install: URL (s3:// or https://) of the .deb or .tar.gz that `cargo xtask dist` makes, and its SHA-256; `kms_key_arn`, if the bucket has a key of its own."
  type        = object({ url = string, sha256 = string, kms_key_arn = optional(string) })
}

variable "regions" {
  description = "AWS region => what is its own. One line adds or removes a region (docs/guides/deploy.md)."
  type = map(object({
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
  }))

  validation {
    condition     = length(setsubtract(keys(var.regions), local.supported)) == 0
    error_message = "There is no provider for ${join(", ", setsubtract(keys(var.regions), local.supported))}. This module can use ${join(", ", local.supported)}; regions.sh writes regions.tf for others."
  }

  validation {
    condition     = length(distinct([for settings in values(var.regions) : settings.cidr if settings.cidr != null])) == length([for settings in values(var.regions) : settings.cidr if settings.cidr != null])
    error_message = "Each region has a cidr of its own, so that their networks can be connected."
  }

  validation {
    condition     = length(distinct([for settings in values(var.regions) : settings.certificate_arn == null])) <= 1
    error_message = "One name has one port: give a certificate_arn to all regions or to none."
  }

  validation {
    condition     = length(var.regions) == 0 || anytrue([for settings in values(var.regions) : !settings.edge])
    error_message = "Edge regions need at least one region with model servers."
  }
}

variable "secrets" {
  description = "What `spillway certs init` and `spillway certs node` wrote: the CA's certificate, the prefix key, and each region's certificate and key, with a join token where the region joins; `admin_tokens`, where a region has monitoring_cidrs: lines `name role token` of operators. Neither the plan nor the state holds them."
  type = object({
    ca           = string
    prefix_key   = string
    admin_tokens = optional(string)
    nodes = map(object({
      certificate = string
      key         = string
      join_token  = optional(string)
    }))
  })
  ephemeral = true
  sensitive = true

  validation {
    condition     = length(setsubtract(keys(var.regions), nonsensitive(keys(var.secrets.nodes)))) == 0
    error_message = "A region has no certificate: run `spillway certs node --region REGION --node REGION`."
  }
}

variable "name" {
  description = "Name that clients use, in the zone `zone_id`."
  type        = string
  default     = null
}

variable "zone_id" {
  description = "Hosted zone of Route 53."
  type        = string
  default     = null
}

variable "enable_global_accelerator" {
  description = "Whether clients come by two anycast addresses of Global Accelerator."
  type        = bool
  default     = false
}

variable "countries" {
  description = "Country => region that its clients go to while that is healthy."
  type        = map(string)
  default     = {}
}

variable "continents" {
  description = "Continent => region that its clients go to while that is healthy."
  type        = map(string)
  default     = {}
}

variable "auth" {
  description = "Who may connect: `keys` or `none`."
  type        = string
  default     = "keys"
}

variable "client_cidrs" {
  description = "Who may reach the load balancers, beside the health checks of Route 53 where clients have a name there."
  type        = list(string)
  default     = ["0.0.0.0/0"]

  validation {
    condition     = contains(var.client_cidrs, "0.0.0.0/0") || !var.enable_global_accelerator || alltrue([for settings in values(var.regions) : settings.certificate_arn == null])
    error_message = "client_cidrs can't restrict clients that come by an accelerator to load balancers with TLS: these see the accelerator's addresses."
  }
}

variable "backups" {
  description = "Where each node's backups go: a bucket, the public key (age1...) that they are encrypted for, when (systemd's OnCalendar, at least once a day), and the bucket's KMS key, if it has its own. None: no backups."
  type = object({
    bucket      = string
    encrypt_to  = string
    prefix      = optional(string, "spillway")
    on_calendar = optional(string, "hourly")
    kms_key_arn = optional(string)
  })
  default = null
}

variable "deletion_protection" {
  description = "Whether load balancers refuse to be deleted."
  type        = bool
  default     = false
}

variable "log_days" {
  description = "How long CloudWatch keeps the nodes' logs."
  type        = number
  default     = 365
}

variable "rtts_ms" {
  description = "Round trips that are better known than modules/mesh does: \"a b\" => ms, regions in alphabetical order."
  type        = map(number)
  default     = {}
}

variable "tags" {
  description = "Tags of everything."
  type        = map(string)
  default     = {}
}
