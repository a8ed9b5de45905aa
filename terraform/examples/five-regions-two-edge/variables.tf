variable "package" {
  description = "URL (s3:// or https://) and SHA-256 of the .deb or .tar.gz that `cargo xtask dist` made."
  type        = object({ url = string, sha256 = string })
}

variable "certs" {
  description = "Folder in which `spillway certs` wrote the cluster's certificates."
  type        = string
  default     = "certs"
}

variable "name" {
  description = "Name that clients use. Without it each region has an address of its own."
  type        = string
  default     = null
}

variable "zone_id" {
  description = "Hosted zone of Route 53 that the name is in."
  type        = string
  default     = null
}

variable "enable_global_accelerator" {
  description = "Whether clients come by two anycast addresses."
  type        = bool
  default     = false
}
