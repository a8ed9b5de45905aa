//! Log set-up: `tracing` to standard error, as text or JSON.

use std::fs::File;
use std::io::IsTerminal;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A readable line per event, in colour on a terminal.
    #[default]
    Text,
    /// A JSON object per event, for log collectors.
    Json,
}

/// Error of setting up the log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter does not parse.
    #[error("log filter {filter:?}: {source}")]
    Filter {
        /// The filter as given.
        filter: String,
        /// Fault of the filter.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Something else in this process logs already.
    #[error("logging is set up already")]
    AlreadySet,
}

/// Levels of two libraries. openraft reports each unreachable follower several times a second;
/// Spillway reports it once. hickory warns of whatever strangers send to the name server.
const QUIET: &str = "openraft=error,hickory_proto=error";

/// Sends logs to standard error. `filter` has the form of `RUST_LOG`, e.g.
/// `info,spillway_proxy=debug`. openraft and hickory log below errors only if the filter names
/// them.
///
/// # Errors
/// Returns an error if the filter does not parse, or a logger is installed already.
pub fn install(filter: &str, format: Format) -> Result<(), LogError> {
    install_to(filter, format, std::io::stderr, std::io::stderr().is_terminal())
}

/// Sends logs to a file, without colours, for programs that have the terminal to themselves.
///
/// # Errors
/// Returns an error as [`install`] does.
pub fn install_in(file: File, filter: &str, format: Format) -> Result<(), LogError> {
    install_to(filter, format, Mutex::new(file), false)
}

fn install_to<W>(filter: &str, format: Format, writer: W, in_colour: bool) -> Result<(), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // The filter stands last, so that it replaces these levels if it names the same libraries.
    let quieted = format!("{QUIET},{filter}");
    let filter_parsed = EnvFilter::try_new(quieted)
        .map_err(|source| LogError::Filter { filter: filter.to_owned(), source })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter_parsed)
        .with_ansi(in_colour)
        .with_writer(writer);
    match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().try_init(),
    }
    .map_err(|_| LogError::AlreadySet)
}
