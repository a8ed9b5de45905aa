variable "cluster" {
  description = "Name of the cluster, as `spillway certs init --cluster` was told."
  type        = string
}

variable "package" {
  description = "What to install: URL (s3:// or https://) of the .deb or .tar.gz that `cargo xtask dist` makes, and its SHA-256."
  type        = object({ url = string, sha256 = string })
}

variable "regions" {
  description = "AWS region => what is its own. One line adds or removes a region (docs/guides/deploy.md)."
  type = map(object({
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
  }))

  validation {
    condition     = length(setsubtract(keys(var.regions), local.supported)) == 0
    error_message = "There is no provider for ${join(", ", setsubtract(keys(var.regions), local.supported))}. This module can use ${join(", ", local.supported)}; regions.tf says how to add one."
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
  description = "What `spillway certs init` and `spillway certs node` wrote: the CA's certificate, the prefix key, and each region's certificate and key, with a join token where the region joins. Neither the plan nor the state holds them."
  type = object({
    ca         = string
    prefix_key = string
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
  description = "Who may reach the load balancers. Health checks of Route 53 come from AWS's own addresses (service ROUTE53_HEALTHCHECKS of its list) and have to be among them."
  type        = list(string)
  default     = ["0.0.0.0/0"]
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
