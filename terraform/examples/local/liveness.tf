# Which processes live, read anew by each `plan`. Terraform has no eye for processes, but its functions read files, and
# /proc is made of files.
#
# Each process leaves a mark, "<start> <pid> <token>", and has the token in its environment: a pid that was given to another
# process has no such token. A start is a number. While the process lives it stays what the state says, and nothing is
# to be done; when the process is gone it is one more, which replaces that process alone. After that the mark says the
# new number, so that the next plan is empty.
#
# What is read stays the same from `plan` to the end of `apply`: an environment never changes, and marks are written only
# by processes that are started after all this has been read. Terraform refuses a plan whose values change on the way.
locals {
  processes = toset(flatten([for name in keys(var.regions) : ["${name}/node", "${name}/replicas"]]))

  # Who never ran has no mark: its first start is number 1.
  marks = {
    for process in local.processes :
    process => try(
      regex("^([0-9]+) ([0-9]+) ([0-9a-f-]+)$", chomp(file("${local.folder}/regions/${process}.mark"))),
      ["1", "none", "none"]
    )
  }

  dead = toset([
    for process, mark in local.marks : process
    if mark[1] != "none" && !strcontains(try(file("/proc/${mark[1]}/environ"), ""), "SPILLWAY_LOCAL_TOKEN=${mark[2]}")
  ])

  starts = {
    for process, mark in local.marks :
    process => tonumber(mark[0]) + (contains(local.dead, process) ? 1 : 0)
  }
}

check "processes" {
  assert {
    condition     = length(local.dead) == 0
    error_message = "Found dead, to be started again by `apply`: ${join(", ", local.dead)}."
  }
}
