//! Tests of the crate against real servers: the emulator, DNS, gRPC, files.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

mod checks;
mod discovery_dns;
mod discovery_file;
mod grpc;
mod monitors;
mod scrapes;
mod scripted;
mod support;
