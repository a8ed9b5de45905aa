//! Log set-up: `tracing` to standard error, as text or JSON.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Duration;

use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, registry};

use crate::line_writer::{LineDestination, LineWriter};
use crate::log_pace::LogPace;

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
    /// Standard error can't be used.
    #[error("can't log to standard error: {0}")]
    Open(#[from] io::Error),
    /// Something else in this process logs already.
    #[error("logging is set up already")]
    AlreadySet,
}

/// Levels of three libraries. openraft reports each unreachable follower several times a second;
/// Spillway reports it once, and [paces](LogPace) what openraft still logs. hickory warns of whatever
/// strangers send to the name server, and h2 of each connection that a client misuses: thousands of
/// lines a second before any key is known.
const QUIET: &str = "openraft=error,hickory_proto=error,h2=error";

/// Log to standard error, which many threads share. Each of them would wait for a reader that hangs if it
/// wrote by itself, and a write that fails would end the task that logs.
static LOG: OnceLock<LineWriter> = OnceLock::new();
/// Lines of that log that were lost.
static LOST: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);

/// Longest wait for the last lines.
const LAST_LINES: Duration = Duration::from_millis(300);

/// Returns the number of lines that standard error did not get: they were not read in time, or
/// could not be written.
#[must_use]
pub fn lines_lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Waits until standard error has all lines so far, or for 300 ms: its reader may hang.
pub fn flush() {
    LOG.get().map(|log| log.flush(LAST_LINES));
}

/// One line for standard error.
struct LogLine;

impl io::Write for LogLine {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let line = text.strip_suffix(b"\n").unwrap_or(text);
        if let Some(log) = LOG.get() {
            log.write(String::from_utf8_lossy(line).into_owned());
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends logs to standard error. `filter` has the form of `RUST_LOG`, e.g.
/// `info,spillway_proxy=debug`. openraft, hickory and h2 log below errors only if the filter names
/// them.
///
/// # Errors
/// Returns an error if the filter does not parse, or a logger is installed already.
pub fn install(filter: &str, format: Format) -> Result<(), LogError> {
    install_to(filter, format, || LogLine, io::stderr().is_terminal())?;
    let log = LineWriter::open(&LineDestination::Stderr, Arc::clone(&LOST))?;
    LOG.set(log).map_err(|_| LogError::AlreadySet)
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
    let lines = fmt::layer()
        .with_ansi(in_colour)
        // They go to standard error by a macro that panics where it can't be written.
        .log_internal_errors(false)
        .with_writer(writer);
    let lines = match format {
        Format::Text => lines.boxed(),
        Format::Json => lines.json().boxed(),
    };
    let log = registry().with(quieted(filter)?).with(LogPace::default()).with(lines);
    log.try_init().map_err(|_| LogError::AlreadySet)
}

fn quieted(filter: &str) -> Result<EnvFilter, LogError> {
    // The filter stands last, so that it replaces these levels if it names the same libraries.
    EnvFilter::try_new(format!("{QUIET},{filter}"))
        .map_err(|source| LogError::Filter { filter: filter.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_filter_that_names_a_quiet_library_sets_its_level_and_a_bad_one_is_an_error() {
        for (filter, quiet, loud) in [
            ("info", "openraft=error", "openraft=debug"),
            ("openraft=debug", "h2=error", "openraft=error"),
            ("h2=trace,info", "hickory_proto=error", "h2=error"),
        ] {
            let levels = quieted(filter).unwrap().to_string();
            let levels: Vec<&str> = levels.split(',').collect();
            assert!(levels.contains(&quiet), "{filter}: {levels:?}");
            assert!(!levels.contains(&loud), "{filter}: {levels:?}");
        }
        let error = quieted("spillway=loud").unwrap_err().to_string();
        assert!(error.contains(r#""spillway=loud""#), "{error}");
        assert!(!error.contains("openraft"), "{error} is about what the operator wrote");
    }

    #[test]
    fn clients_write_no_lines_through_the_http_library() {
        for (filter, expected) in [("info", 1), ("info,h2=warn", 2)] {
            let mut file = tempfile::tempfile().unwrap();
            let lines = Arc::new(file.try_clone().unwrap());
            let log = tracing_subscriber::fmt()
                .with_env_filter(quieted(filter).unwrap())
                .with_writer(lines)
                .finish();
            tracing::subscriber::with_default(log, || {
                tracing::warn!(target: "h2::proto::streams::recv", "a flood of a client");
                tracing::info!(target: "spillway_node", "a line");
            });
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text.lines().count(), expected, "{filter}: {text}");
        }
    }
}
