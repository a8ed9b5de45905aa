//! Tests of the emulator through real sockets, like its clients.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod accounting;
mod answers;
mod client;
mod deaths;
mod early_ends;
mod encodings;
mod engine_effects;
mod faults;
mod grpc;
mod messages;
mod openai;
mod other_endpoints;
mod responses;
mod responses_background;
mod usage;
mod v2;
