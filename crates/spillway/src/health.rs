//! `spillway health`: asks a node's admin listener for its state; for images without other
//! programs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::{Request, StatusCode, header};
use serde_json::json;
use spillway_node::OWN_AGENT;
use tokio::time::{sleep, timeout};

use crate::admin_stream::{self, AdminConnection};
use crate::connect::{AdminUrl, Connect, HEADING, parse_admin};
use crate::output;
use crate::screen::duration;

/// Longest answer that is shown, in bytes: it is a sentence.
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// Pause between two questions of `--wait`.
const PERIOD: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(after_help = "Example: spillway health\n\
    Example: spillway health --wait 30 || tail node.log\n\
    Example: spillway health --admin https://127.0.0.1:9900 --ca ca.pem --for clients\n\n\
    Exits with 0 if the answer is 200, else with 1. With --wait it exits with 0 as soon as the answer \
    is 200, or with 1 and the last reason after that time.")]
pub(crate) struct HealthArgs {
    /// The node's admin listener.
    #[arg(long = "admin", alias = "url", env = "SPILLWAY_ADMIN")]
    #[arg(default_value = "http://127.0.0.1:9900", value_parser = parse_admin, help_heading = HEADING)]
    url: AdminUrl,
    /// The CA of the listener's certificate, PEM; the system's CAs by default.
    #[arg(long, env = "SPILLWAY_CA", help_heading = HEADING)]
    ca: Option<PathBuf>,
    /// Question to ask.
    #[arg(long = "for", value_enum, default_value_t = Purpose::Node)]
    purpose: Purpose,
    /// Time limit for the answer in milliseconds.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    timeout_ms: u64,
    /// Repeats the check until the node is ready, for at most this time. By default it checks once.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    wait: Option<u64>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Purpose of the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Purpose {
    /// Whether it works: it serves, and holds its shares of limits.
    Node,
    /// Whether clients should be sent to it.
    Clients,
}

impl Purpose {
    fn path(self) -> &'static str {
        match self {
            Self::Node => "/readyz",
            Self::Clients => "/steering",
        }
    }
}

/// Asks a node, and fails unless its answer is 200.
///
/// # Errors
/// Returns an error if there is no answer in time, or its status is not 200.
pub(crate) fn run(args: &HealthArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let healthy = runtime.block_on(async {
        match args.wait {
            Some(seconds) => wait(args, Duration::from_secs(seconds)).await,
            None => once(args).await,
        }
    });
    if args.json {
        let cause = healthy.as_ref().err().map(|error| format!("{error:#}"));
        output::line(&json!({ "ok": cause.is_none(), "cause": cause }).to_string())?;
    } else if healthy.is_ok() {
        output::line("ok")?;
    }
    healthy
}

/// Asks until the node is ready, and returns the last reason if it is not in time.
async fn wait(args: &HealthArgs, limit: Duration) -> Result<()> {
    let mut last = None;
    let ready = async {
        loop {
            match once(args).await {
                Ok(()) => return,
                Err(error) => last = Some(error),
            }
            sleep(PERIOD).await;
        }
    };
    if timeout(limit, ready).await.is_ok() {
        return Ok(());
    }
    let late = format!("not ready after {}", duration(limit.as_secs()));
    Err(last.unwrap_or_else(|| anyhow!("no answer from {}", args.url)).context(late))
}

/// Asks once.
async fn once(args: &HealthArgs) -> Result<()> {
    let limit = Duration::from_millis(args.timeout_ms);
    let answered = timeout(limit, ask(args)).await;
    let (status, said) = answered.with_context(|| format!("no answer from {}", args.url))??;
    if status != StatusCode::OK {
        bail!("{} of {} says {status}: {said}", args.purpose.path(), args.url);
    }
    Ok(())
}

async fn ask(args: &HealthArgs) -> Result<(StatusCode, String)> {
    let connect =
        Connect { admin: args.url.clone(), ca: args.ca.clone(), token_file: None, json: false };
    let mut connection = AdminConnection::open(&connect).await?;
    let request = Request::get(args.purpose.path()).header(header::USER_AGENT, OWN_AGENT);
    let response = connection.send(request, Bytes::new()).await?;
    let status = response.status();
    // The status alone decides, so an unreadable body is no error.
    let said = admin_stream::read(response, ANSWER_BYTES_MAX).await.unwrap_or_default();
    Ok((status, String::from_utf8_lossy(&said).trim().to_owned()))
}
