variable "cluster" {
  description = "Name of the cluster."
  type        = string
}

variable "balancers" {
  description = "AWS region => where its clients go: output `balancer` of modules/region."
  type        = map(object({ arn = string, address = string, dns_name = string, port = number, tls = bool }))

  validation {
    condition     = length(distinct([for balancer in values(var.balancers) : balancer.port])) <= 1
    error_message = "One name has one port: give a certificate to the load balancers of all regions or of none."
  }
}

variable "enable_global_accelerator" {
  description = "Whether clients come by two anycast addresses of Global Accelerator."
  type        = bool
  default     = false
}

variable "zone_id" {
  description = "Hosted zone of Route 53 in which `name` is; none: no records."
  type        = string
  default     = null
}

variable "name" {
  description = "Name that clients use, in that zone."
  type        = string
  default     = null

  validation {
    condition     = (var.name == null) == (var.zone_id == null)
    error_message = "name and zone_id belong together: a name has to be in a zone of Route 53."
  }
}

variable "countries" {
  description = "Country => region that its clients go to while that is healthy, e.g. DE => eu-central-1. Ignored with an accelerator."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for region in values(var.countries) : contains(keys(var.balancers), region)])
    error_message = "countries names a region that is not there."
  }
}

variable "continents" {
  description = "Continent (AF, AN, AS, EU, NA, OC, SA) => region that its clients go to while that is healthy. Ignored with an accelerator."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for region in values(var.continents) : contains(keys(var.balancers), region)])
    error_message = "continents names a region that is not there."
  }
}

variable "ttl_s" {
  description = "How long an answer may be kept, in seconds. A client notices a lost region after the health check (20 s) and this."
  type        = number
  default     = 30
}

variable "tags" {
  description = "Tags of everything that takes tags."
  type        = map(string)
  default     = {}
}
