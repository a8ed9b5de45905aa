# A cluster on this machine, by what Terraform has built in: no provider is downloaded.

terraform {
  required_version = ">= 1.5"
}

locals {
  binary = abspath(var.binary)
  folder = abspath(var.folder)
  script = "${path.module}/local.sh"

  has_proc = fileexists("/proc/self/environ")

  regions = {
    for name, region in var.regions : name => {
      settings = region
      # All that makes a process another one. Other regions are missing on purpose: a cluster that is formed
      # learns of new members by itself, so one more region restarts no node.
      release = {
        binary   = fileexists(local.binary) ? filesha256(local.binary) : "missing"
        folder   = local.folder
        region   = region
        replicas = var.replicas
        model    = var.model
      }
      environment = {
        BINARY       = local.binary
        FOLDER       = local.folder
        REGION       = name
        PORT         = region.port
        REPLICAS     = var.replicas
        MODEL        = var.model
        WAIT_SECONDS = var.wait_seconds
        OTHERS       = join(" ", [for other, its in var.regions : "${other}=${its.port + 1}" if other != name])
        CONFIG = templatefile("${path.module}/node.toml.tftpl", {
          name     = name
          region   = region
          replicas = var.replicas
          model    = var.model
          others   = { for other, its in var.regions : other => its if other != name }
        })
      }
    }
  }
}

# Certificates of the cluster. Its `destroy` runs last and removes what is left of the folder.
resource "terraform_data" "certificates" {
  triggers_replace = { folder = local.folder }

  lifecycle {
    precondition {
      condition     = local.has_proc
      error_message = "This example runs on Linux only: it looks into /proc to see which processes live."
    }
    precondition {
      condition     = fileexists(local.binary)
      error_message = "There is no ${local.binary}: run `cargo build --release` in the project's root, or name the command with -var binary=PATH."
    }
  }

  provisioner "local-exec" {
    command     = "bash '${local.script}' make-certificates"
    environment = { BINARY = local.binary, FOLDER = local.folder }
  }

  provisioner "local-exec" {
    when        = destroy
    command     = "bash '${path.module}/local.sh' remove-folder"
    environment = { FOLDER = self.triggers_replace.folder }
  }
}

# A region's folder. Whatever runs in it is ended by its `destroy`, and only by that: nodes and replicas have none, so that
# nothing on this machine changes before Terraform has read again who lives (liveness.tf).
resource "terraform_data" "region" {
  for_each         = local.regions
  triggers_replace = { folder = local.folder, name = each.key }
  depends_on       = [terraform_data.certificates]

  provisioner "local-exec" {
    command     = "bash '${local.script}' make-region"
    environment = each.value.environment
  }

  provisioner "local-exec" {
    when        = destroy
    command     = "bash '${path.module}/local.sh' remove-region"
    environment = { FOLDER = self.triggers_replace.folder, REGION = self.triggers_replace.name }
  }
}

resource "terraform_data" "replicas" {
  for_each         = local.regions
  triggers_replace = merge(each.value.release, { start = local.starts["${each.key}/replicas"] })
  depends_on       = [terraform_data.region]

  provisioner "local-exec" {
    command     = "bash '${local.script}' start-replicas"
    environment = merge(each.value.environment, { START = local.starts["${each.key}/replicas"] })
  }
}

resource "terraform_data" "node" {
  for_each = local.regions
  triggers_replace = merge(each.value.release, {
    config = filesha256("${path.module}/node.toml.tftpl")
    start  = local.starts["${each.key}/node"]
  })
  depends_on = [terraform_data.replicas]

  provisioner "local-exec" {
    command     = "bash '${local.script}' start-node"
    environment = merge(each.value.environment, { START = local.starts["${each.key}/node"] })
  }
}

# Ready when these regions, and no others, are members of the cluster.
resource "terraform_data" "cluster" {
  triggers_replace = { folder = local.folder, regions = { for name, region in var.regions : name => region.port } }
  depends_on       = [terraform_data.node]

  provisioner "local-exec" {
    command = "bash '${local.script}' settle"
    environment = {
      BINARY       = local.binary
      FOLDER       = local.folder
      MEMBERS      = join(" ", [for name, region in var.regions : "${name}=${region.port + 1}"])
      WAIT_SECONDS = var.wait_seconds
    }
  }
}
