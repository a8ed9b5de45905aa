//! Log set-up: `tracing` to standard error, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One readable line an event, in colour on a terminal.
    #[default]
    Text,
    /// One JSON object an event, for log collectors.
    Json,
}

/// The log set-up could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter does not parse.
    #[error("log filter {filter:?}: {source}")]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Something else in this process logs already.
    #[error("logging is set up already")]
    AlreadySet,
}

/// What openraft says of each follower that can't be reached, several times a second, is said by
/// Spillway itself, once.
const QUIET: &str = "openraft=error";

/// Sends logs to standard error; `filter` is in `RUST_LOG`'s form, e.g. `info,spillway_proxy=debug`.
/// openraft is heard only if the filter names it.
///
/// # Errors
/// If the filter does not parse, or a logger is installed already.
pub fn install(filter: &str, format: Format) -> Result<(), LogError> {
    let quieted = format!("{QUIET},{filter}");
    let filter_parsed = EnvFilter::try_new(quieted)
        .map_err(|source| LogError::Filter { filter: filter.to_owned(), source })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter_parsed)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().try_init(),
    }
    .map_err(|_| LogError::AlreadySet)
}
