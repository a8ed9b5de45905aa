//! Parts that the demo, the benches, the chaos trials and tests share: processes, HTTP clients, load, records of
//! requests, metrics pages, quantiles and tables.
//!
//! Errors here are only read by people, so they are `anyhow`'s.

mod attempt;
mod client;
mod command;
mod connection;
mod grid;
mod guard;
mod load;
mod machine;
mod metrics;
mod process;
mod quantile;
mod stream;
mod task;
mod wait;

pub use attempt::{AttemptEnd, AttemptError, LoadAttempt, LoadRecord, LoadReply, good_ms, kinds};
pub use client::{LoadClient, LoadRequest};
pub use command::{certs, emulate};
pub use connection::{ClientBody, Connection, full};
pub use grid::{Grid, figure, percent};
pub use guard::watch;
pub use load::{LoadGenerator, LoadSource, exponential_gap, open_loop};
pub use machine::{core_count, processor_model};
pub use metrics::{ScrapedPage, ScrapedSample};
pub use process::Process;
pub use quantile::quantile;
pub use stream::StreamReply;
pub use task::spawn;
pub use wait::wait_for;
