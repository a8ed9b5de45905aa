//! Networks of real namespaces, as a library and as a program.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what surrounds tests fails as they do; clippy knows only functions marked as tests"
)]

mod network;
mod program;
mod support;
