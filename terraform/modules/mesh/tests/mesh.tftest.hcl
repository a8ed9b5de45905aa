variables {
  nodes = {
    a = { region = "us-east-1", address = "198.51.100.1:7946" }
    b = { region = "eu-west-1", address = "198.51.100.2:7946" }
    c = { region = "nowhere-1", address = "198.51.100.3:7946", join = true }
  }
}

run "those_that_begin_name_each_other" {
  assert {
    condition     = [for name, peer in output.peers["a"] : name if peer.in_config] == ["b"]
    error_message = "a and b have to name each other alone."
  }
  assert {
    condition     = keys(output.peers["a"]) == ["b", "c"]
    error_message = "a has to let c in, though."
  }
  assert {
    condition     = [for name, peer in output.peers["c"] : name if peer.in_config] == ["a", "b"]
    error_message = "c may ask any node to be taken in."
  }
}

run "round_trips_are_of_both_ways" {
  variables {
    rtts_ms = { "nowhere-1 us-east-1" = 500, "eu-west-1 us-east-1" = 71 }
  }
  assert {
    condition     = output.rtts_ms["a"] == { "eu-west-1" = 71, "nowhere-1" = 500 }
    error_message = "What is said counts before what is typical."
  }
  assert {
    condition     = output.rtts_ms["b"] == { "us-east-1" = 71 }
    error_message = "What nobody knows is left out."
  }
}

run "somebody_begins" {
  command = plan
  variables {
    nodes = { a = { region = "us-east-1", address = "198.51.100.1:7946", join = true } }
  }
  expect_failures = [var.nodes]
}
